// A report's work on all cores. Internal to client/report.
#pragma once

#include <cstddef>
#include <functional>

namespace convtune::report {

// Threads that so many rows are worth: one where they are few, else the machine's
// cores, up to 16.
size_t WorkersFor(size_t rows);

// Calls `work(worker, begin, end)` for parts of [0, count) until all are done, each
// from one of so many threads: calls with the same `worker`, below `workers`, never
// overlap. With one worker it is the calling thread.
void InParallel(size_t workers, size_t count,
                const std::function<void(size_t worker, size_t begin, size_t end)>& work);

}  // namespace convtune::report

#include "client/report/parallel.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

namespace convtune::report {
namespace {

constexpr size_t kWorthAThread = 50'000;  // rows
constexpr size_t kMostWorkers = 16;
// Parts for each worker, so that none waits long for the last one.
constexpr size_t kParts = 32;

}  // namespace

size_t WorkersFor(size_t rows) {
  const size_t cores = std::max(std::thread::hardware_concurrency(), 1U);
  return std::min({cores, kMostWorkers, rows / kWorthAThread + 1});
}

void InParallel(size_t workers, size_t count,
                const std::function<void(size_t worker, size_t begin, size_t end)>& work) {
  if (workers <= 1) {
    work(0, 0, count);
    return;
  }
  const size_t part = count / (workers * kParts) + 1;
  std::atomic<size_t> next = 0;
  const auto run = [&](size_t worker) {
    for (size_t begin = next.fetch_add(part); begin < count; begin = next.fetch_add(part)) {
      work(worker, begin, std::min(begin + part, count));
    }
  };
  std::vector<std::thread> threads;
  for (size_t worker = 1; worker < workers; ++worker) threads.emplace_back(run, worker);
  run(0);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace convtune::report

// A Timer measures how long a launch takes. The method, its units and its limits
// are in server/worker/README.md.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/worker/backend.h"
#include "server/worker/timing/timed_stream.h"

namespace convtune::worker::timing {

// Memory of the GPU.
struct MemorySpan {
  const void* data = nullptr;
  int64_t bytes = 0;
};

struct TimedWork {
  // Puts the work on the timer's stream. It has run before, so that it neither
  // loads code nor allocates any more.
  std::function<absl::Status()> launch;
  CacheState cache_state = CacheState::kInputHot;
  // What the layer before wrote, in the order in which it is read.
  std::vector<MemorySpan> inputs;
  Expectation expected;
  // Attempts behind a hold; 0 for work that cannot be launched onto a held
  // stream.
  int holds = HoldPolicy::kAttempts;
};

// Not thread-safe.
class Timer {
 public:
  // `stream` outlives it.
  explicit Timer(TimedStream* stream) : stream_(stream) {}

  // A sample: the mean over a few runs of the work, each of which finds the
  // caches in the state asked for; waits for their end. They are queued while
  // the stream is held, so that the time of launching is not in the GPU's. A
  // sample whose hold reached its limit is thrown away: the work waits for the
  // GPU as it is launched, or the host was kept from launching. After
  // `work.holds` of them it is timed without a hold, and TimedRun::held is
  // false. Errors are those of the launch and of the work.
  absl::StatusOr<TimedRun> Time(const TimedWork& work);

 private:
  absl::StatusOr<std::optional<TimedRun>> TryOnce(const TimedWork& work, bool hold);
  absl::Status Queue(const TimedWork& work, int runs, double* host_us);
  absl::Status PrepareCaches(const TimedWork& work);

  TimedStream* const stream_;
};

}  // namespace convtune::worker::timing

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
  // The tensors that the layer before wrote, in the order in which they are read.
  std::vector<MemorySpan> inputs;
  Expectation expected;
  int sample_us = kSampleUs;  // see PlanSample
  // Attempts behind a blocking kernel; 0 for work that cannot be launched behind a
  // blocked stream.
  int block_attempts = BlockingPolicy::kAttempts;
};

// Not thread-safe.
class Timer {
 public:
  // `stream` outlives it.
  explicit Timer(TimedStream* stream) : stream_(stream) {}

  // A sample: the mean over a few runs of the work, each of which finds the
  // caches in the state asked for; waits for their end. They are queued while
  // the stream is blocked, so that the time of launching is not in the GPU's. A
  // sample whose blocking kernel reached its limit is thrown away: the work waits for the
  // GPU as it is launched, or the host was kept from launching. After
  // `work.block_attempts` of them it is timed without a blocking kernel, and TimedRun::blocked is
  // false. Errors are those of the launch and of the work.
  absl::StatusOr<TimedRun> Time(const TimedWork& work);

 private:
  absl::StatusOr<std::optional<TimedRun>> TryOnce(const TimedWork& work, bool block);
  absl::Status Queue(const TimedWork& work, int runs, double* host_us);
  absl::Status PrepareCaches(const TimedWork& work);

  TimedStream* const stream_;
};

}  // namespace convtune::worker::timing

// TakeSample measures how long a launch takes. The method, its units and its limits
// are in server/worker/README.md.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/worker/backend.h"
#include "server/worker/timing/sample_plan.h"

namespace convtune::worker::timing {

// A TimedStream is the stream that samples are taken on. Tests put a stream of their
// own in the GPU's place.
//
// Calls put work on the stream and come back at once, but for Synchronize.
// None allocates. Errors are CUDA's. Not thread-safe.
class TimedStream {
 public:
  static constexpr int kStamps = 2;
  static constexpr int kEvents = 2 * kMostRuns;

  virtual ~TimedStream() = default;

  // Holds what is put on the stream from here on until Release(), or until
  // `limit` has passed on the GPU. REQUIRES: no other blocking kernel is on the stream.
  virtual absl::Status Block(absl::Duration limit) = 0;
  virtual void Release() = 0;
  // Waits until the stream is empty.
  virtual absl::Status Synchronize() = 0;
  // True if the last blocking kernel ended by its limit. REQUIRES: Synchronize() since.
  virtual bool GaveUp() const = 0;

  // `slot` is below kStamps. A stamp that was not put is {0, 0}.
  virtual absl::Status PutStamp(int slot) = 0;
  virtual Stamp ReadStamp(int slot) const = 0;

  // Leaves nothing of earlier work in the L2 cache, together with `read_next` bytes that
  // Read() is called for behind it. At least half of a flush is read all the same.
  virtual absl::Status Flush(int64_t read_next) = 0;
  // Reads memory of the GPU into the L2 cache, as far as it fits.
  virtual absl::Status Read(const void* data, int64_t bytes) = 0;

  // `event` is below kEvents.
  virtual absl::Status Record(int event) = 0;
  // REQUIRES: both are recorded, and Synchronize() since.
  virtual absl::StatusOr<double> ElapsedUs(int first, int second) = 0;
};

// Memory of the GPU.
struct MemorySpan {
  const void* data = nullptr;
  int64_t bytes = 0;
};

struct TimedWork {
  // Puts the work on the stream, on the copy of its memory with this number. Unless
  // block_attempts is 0, the work has run on that copy before, so that it neither loads code nor
  // allocates any more.
  std::function<absl::Status(int copy)> launch;
  CacheState cache_state = CacheState::kInputHot;
  // Copies of all memory that the work touches, 1 at least. Behind a blocking kernel runs on
  // different copies share one flush.
  int copies = 1;
  // Per copy, the tensor that the layer before wrote. Empty for work without such a tensor.
  std::vector<MemorySpan> inputs;
  TimedRun expected;          // see PlanSample
  int sample_us = kSampleUs;  // see PlanSample
  // Attempts behind a blocking kernel; 0 for work that cannot be launched behind a
  // blocked stream.
  int block_attempts = BlockingPolicy::kAttempts;
};

// Takes a sample: the mean over a few runs of the work, each of which finds the caches in the state
// asked for; waits for their end. A sample whose blocking kernel reached its limit is thrown away.
// After `work.block_attempts` of them one is taken without a blocking kernel, and
// TimedRun::blocked is false. Errors are those of the launch and of the work.
absl::StatusOr<TimedRun> TakeSample(const TimedWork& work, TimedStream* stream);

}  // namespace convtune::worker::timing

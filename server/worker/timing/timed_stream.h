// A TimedStream is the stream that the timer works on. Tests put a stream of their
// own in the GPU's place.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/worker/backend.h"
#include "server/worker/timing/sample_plan.h"

namespace convtune::worker::timing {

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

}  // namespace convtune::worker::timing

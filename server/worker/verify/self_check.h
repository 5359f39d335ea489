// Pure functions that judge the readings of the worker's check of its own
// instruments (server/worker/README.md), and SelfCheckDevice, which takes them. Tests put
// a device of their own in its place.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/model/tuning/self_check.h"
#include "server/worker/backend.h"
#include "server/worker/timing/timed_stream.h"
#include "server/worker/timing/timer.h"

namespace convtune::worker::verify {

// A read of memory behind a blocking kernel that was released after a while.
struct BlockReading {
  bool gave_up = false;
  double waited_us = 0;  // from when it was queued to the release, by the host
  double read_us = 0;    // its own time, by events
};

struct ClockReading {
  // Shortest times, by events, of a blocking kernel that nobody releases, with a
  // limit of kShortDelay and of kLongDelay.
  double short_us = 0;
  double long_us = 0;
  // Between two stamps: by globaltimer, and what the host saw at least and at
  // most.
  double card_us = 0;
  double host_least_us = 0;
  double host_most_us = 0;
};

// Times by events.
struct CacheReading {
  double hot_us = 0;   // of reading memory that was just read
  double cold_us = 0;  // of reading it after a flush
  double flush_us = 0;
  int64_t flush_bytes = 0;
  int64_t read_bytes = 0;              // that were read
  double memory_bytes_per_second = 0;  // of the card, by its own figures; 0: not known
};

// How long the GPU is kept at work before its clock is read: an idle GPU's clocks
// are low, and launches take longer.
inline constexpr absl::Duration kWarmUp = absl::Milliseconds(50);
inline constexpr absl::Duration kReleaseAfter = absl::Milliseconds(2);
inline constexpr absl::Duration kShortDelay = absl::Microseconds(50);
inline constexpr absl::Duration kLongDelay = absl::Microseconds(500);
inline constexpr absl::Duration kClockWindow = absl::Milliseconds(50);
// Bytes that a self-check reads, on a card with this L2 cache: a third of it, since
// cards whose L2 has two parts may keep a line in each of them. Where nothing is
// known of L2, some.
inline int64_t CacheBytes(int64_t l2_bytes) {
  return l2_bytes > 0 ? std::max<int64_t>(l2_bytes / 3, 1) : int64_t{16} << 20;
}

// Says why the instrument does not work; empty if it does.
std::string FaultOf(const BlockReading& reading);
std::string FaultOf(const ClockReading& reading);
std::string FaultOf(const CacheReading& reading);
// Of a convolution of small integers, whose result is right to the last bit or wrong.
std::string FaultOf(const worker::v1::Checked& run);

// A PlantedFault is put into an output for the check of results to find; kNothing
// must not be found.
enum class PlantedFault { kNothing, kByteBehind, kNan, kWrongElement };

// An OutputLook is the answer of the check of results to an output.
struct OutputLook {
  bool out_of_bounds = false;
  int64_t nonfinite = 0;
  double error = 0;
};

// Says why the check of results does not work; empty if it does.
std::string FaultOf(PlantedFault fault, const OutputLook& look);

// A SelfCheckDevice is the GPU as a self-check uses it. Errors are CUDA's and cuDNN's. Not
// thread-safe.
class SelfCheckDevice {
 public:
  virtual ~SelfCheckDevice() = default;

  virtual timing::TimedStream* stream() = 0;
  // Memory of the GPU of CacheBytes().
  virtual absl::StatusOr<timing::MemorySpan> Memory() = 0;
  // Bytes that a flush reads; 0: it does nothing.
  virtual int64_t flush_bytes() const = 0;
  // Of the GPU's memory, by its clock and width; 0: not known.
  virtual double memory_bytes_per_second() const = 0;
  // Lets the check of results look at an output with a planted fault.
  virtual absl::StatusOr<OutputLook> Look(PlantedFault fault) = 0;
  // Makes a capture fail with a call that is forbidden in it, then runs a
  // convolution of small integers (graph API, fwd, f16) from the stream, and checks all of
  // its output. FAILED_PRECONDITION if the capture does not fail.
  virtual absl::StatusOr<worker::v1::Checked> RunAfterSpoiltCapture() = 0;
};

struct SelfCheckOptions {
  // Mask of steps that are left out, and count as failed.
  uint32_t lost_steps = 0;
  // Called before each step with its bit; its error ends the self-check.
  std::function<absl::Status(uint32_t step)> on_step;
};

// Tries one instrument after the other. A step that fails with an error is an
// instrument that does not work, with the error as the reason.
absl::StatusOr<SelfCheck> RunSelfCheck(const SelfCheckOptions& options, SelfCheckDevice* card);

}  // namespace convtune::worker::verify

// RunSelfCheck checks the worker's own instruments (server/worker/README.md) on a
// SelfCheckDevice. Tests have a device of their own.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/model/tuning/conditions.h"
#include "server/worker/backend.h"
#include "server/worker/timing/timer.h"

namespace convtune::worker::verify {

// Bytes that a self-check reads, on a card with this L2 cache: a third of it, since
// cards whose L2 has two parts may keep a line in each of them. 16 MiB where the size of L2 is not
// known.
inline int64_t CacheBytes(int64_t l2_bytes) {
  return l2_bytes > 0 ? std::max<int64_t>(l2_bytes / 3, 1) : int64_t{16} << 20;
}

// The convolution of the self-check, of small integers. All of its sizes differ, so that code
// which mixes two dimensions up computes something else.
inline constexpr char kKnownProblem[] = "fwd,x=2x8x9x7,w=16x8x3x3,pad=1,stride=2,nhwc,f16";

// A PlantedFault is put into an output for the check of results to find; kNothing
// must not be found.
enum class PlantedFault { kNothing, kByteBehind, kNan, kWrongElement };

// A SelfCheckDevice is the GPU as a self-check uses it. Errors are CUDA's and cuDNN's.
struct SelfCheckDevice {
  timing::TimedStream* stream = nullptr;
  // Memory of the GPU of CacheBytes().
  std::function<absl::StatusOr<timing::MemorySpan>()> memory;
  int64_t flush_bytes = 0;  // that a flush reads; 0: it does nothing
  // The bandwidth of the GPU's memory, by its clock and width; 0: not known.
  double memory_bytes_per_second = 0;
  // Lets the check of results look at an output with a planted fault: says its error, what is
  // not finite, and what is out of bounds.
  std::function<absl::StatusOr<worker::v1::Checked>(PlantedFault fault)> look;
  // Makes a capture fail with a call that is forbidden in it, then runs kKnownProblem (graph
  // API) from the stream, and checks all of its output. FAILED_PRECONDITION if the capture does not
  // fail.
  std::function<absl::StatusOr<worker::v1::Checked>()> run_after_spoilt_capture;
};

// Tries one instrument after the other. A step that fails with an error is an
// instrument that does not work, with the error as the reason. The steps of the mask
// `lost_steps` are left out, and count as failed. `on_step` is called before each step with
// its bit; its error ends the self-check.
absl::StatusOr<SelfCheck> RunSelfCheck(uint32_t lost_steps,
                                       const std::function<absl::Status(uint32_t step)>& on_step,
                                       const SelfCheckDevice& card);

}  // namespace convtune::worker::verify

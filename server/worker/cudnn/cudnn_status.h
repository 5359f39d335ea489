// Errors of cuDNN and CUDA as absl::Status.
#pragma once

#include <cuda_runtime_api.h>
#include <cudnn.h>

#include <functional>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace convtune::worker::cudnn {

// OK, or what cuDNN says: the name of the status, then the texts of this
// thread's errors, which are thereby cleared. They are cleared after a success
// as well, so each call of cuDNN goes through here. UNIMPLEMENTED for
// NOT_SUPPORTED, INVALID_ARGUMENT for BAD_PARAM, RESOURCE_EXHAUSTED for failed
// allocations, INTERNAL for the rest. `what` names the call.
absl::Status ToStatus(cudnnStatus_t status, absl::string_view what);

// OK, RESOURCE_EXHAUSTED (out of memory), UNAVAILABLE (no device or driver) or
// INTERNAL, with CUDA's text.
absl::Status ToStatus(cudaError_t error, absl::string_view what);

// To be called after a failure on a GPU. Ends a capture that was left open on `stream`, and
// clears what the failure left. Where the context is lost (by an illegal address, say), or a
// capture is open that only cuDNN could end, nothing that follows could be believed: says so
// on stderr and aborts the process.
void Recover(cudaStream_t stream);

// The next two keep an old CUDA error from being taken for a new one. cuDNN has
// a CUDA runtime of its own. A failure there, such as a failed capture of one
// candidate, may be reported by the next launch, perhaps another candidate's.

// Calls `run`. Where it fails, it is called once more at once, behind `clear` (see Recover),
// and counted in `retried`. The second result is the run's.
template <typename Run>
auto TryTwice(const Run& run, const std::function<void()>& clear, int* retried) {
  auto result = run();
  if (result.ok()) return result;
  clear();
  ++*retried;
  return run();
}

// Returns `result`, a Status or a StatusOr. Where it failed, calls `launch` once, so that an
// error that is left is reported there and dropped. REQUIRES: `launch` works as a rule; else it
// leaves an error of its own.
template <typename Result>
Result OrThrowAway(Result result, const std::function<absl::Status()>& launch,
                   const std::function<void()>& clear) {
  if (result.ok()) return result;
  clear();
  launch().IgnoreError();
  clear();
  return result;
}

}  // namespace convtune::worker::cudnn

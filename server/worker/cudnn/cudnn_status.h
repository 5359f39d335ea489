// Errors of cuDNN and CUDA as absl::Status.
#pragma once

#include <cuda_runtime_api.h>
#include <cudnn.h>

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

}  // namespace convtune::worker::cudnn

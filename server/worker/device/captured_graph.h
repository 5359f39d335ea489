// A CapturedGraph is a launch captured into a CUDA graph.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/worker/cudnn/owned.h"

namespace convtune::worker::device {

// Move-only; not thread-safe.
class CapturedGraph {
 public:
  // Captures what `launch` puts on `stream`, which is put there by this thread
  // alone, and makes it ready to be replayed. Errors are those of the launch
  // while it is captured, and CUDA's; the stream can be used after them.
  static absl::StatusOr<CapturedGraph> Capture(cudaStream_t stream,
                                               const std::function<absl::Status()>& launch);

  // Puts one replay on the stream.
  absl::Status Launch(cudaStream_t stream) const;

 private:
  CapturedGraph() = default;

  cudnn::Owned<cudaGraphExec_t, cudaGraphExecDestroy> exec_;
};

}  // namespace convtune::worker::device

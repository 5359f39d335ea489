// A CapturedGraph is a launch captured into a CUDA graph.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace convtune::worker::device {

// Move-only.
class CapturedGraph {
 public:
  // Captures what `launch` puts on `stream`, which is put there by this thread
  // alone, and makes it ready to be replayed. Errors are those of the launch
  // while it is captured, and CUDA's; the stream can be used after them.
  static absl::StatusOr<CapturedGraph> Capture(cudaStream_t stream,
                                               const std::function<absl::Status()>& launch);

  CapturedGraph(CapturedGraph&& other) noexcept : exec_(std::exchange(other.exec_, nullptr)) {}
  CapturedGraph& operator=(CapturedGraph&& other) noexcept {
    std::swap(exec_, other.exec_);
    return *this;
  }
  ~CapturedGraph();

  // Puts one replay on the stream.
  absl::Status Launch(cudaStream_t stream) const;

 private:
  explicit CapturedGraph(cudaGraphExec_t exec) : exec_(exec) {}

  cudaGraphExec_t exec_ = nullptr;
};

}  // namespace convtune::worker::device

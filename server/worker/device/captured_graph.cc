#include "server/worker/device/captured_graph.h"

#include "proto/base/status_macros.h"
#include "server/worker/cudnn/cudnn_status.h"

namespace convtune::worker::device {

absl::StatusOr<CapturedGraph> CapturedGraph::Capture(cudaStream_t stream,
                                                     const std::function<absl::Status()>& launch) {
  // Thread-local: calls that cannot be captured are refused to this thread, and
  // the driver's own threads go on.
  RETURN_IF_ERROR(cudnn::ToStatus(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),
                                  "begin a capture"));
  const absl::Status launched = launch();
  cudaGraph_t raw = nullptr;
  // Always, since it is what ends the capture; of a capture that was spoilt it
  // gives an error and no graph.
  const absl::Status ended = cudnn::ToStatus(cudaStreamEndCapture(stream, &raw), "end a capture");
  const cudnn::Owned<cudaGraph_t, cudaGraphDestroy> graph(raw);
  RETURN_IF_ERROR(launched);
  RETURN_IF_ERROR(ended);
  cudaGraphExec_t exec = nullptr;
  RETURN_IF_ERROR(
      cudnn::ToStatus(cudaGraphInstantiateWithFlags(&exec, raw, 0), "instantiate a graph"));
  CapturedGraph captured;
  captured.exec_.reset(exec);
  // Else the first launch would do it.
  RETURN_IF_ERROR(cudnn::ToStatus(cudaGraphUpload(exec, stream), "upload a graph"));
  RETURN_IF_ERROR(cudnn::ToStatus(cudaStreamSynchronize(stream), "upload a graph"));
  return captured;
}

absl::Status CapturedGraph::Launch(cudaStream_t stream) const {
  return cudnn::ToStatus(cudaGraphLaunch(exec_.get(), stream), "replay a graph");
}

}  // namespace convtune::worker::device

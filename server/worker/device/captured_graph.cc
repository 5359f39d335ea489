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
  cudaGraph_t graph = nullptr;
  // Always, since it is what ends the capture; of a capture that was spoilt it
  // gives an error and no graph.
  const absl::Status ended = cudnn::ToStatus(cudaStreamEndCapture(stream, &graph), "end a capture");
  cudaGraphExec_t exec = nullptr;
  absl::Status status = launched.ok() ? ended : launched;
  if (status.ok()) {
    status = cudnn::ToStatus(cudaGraphInstantiateWithFlags(&exec, graph, 0), "instantiate a graph");
  }
  if (graph != nullptr) {
    cudaGraphDestroy(graph);
  }
  RETURN_IF_ERROR(status);
  CapturedGraph captured(exec);
  // Else the first launch would do it.
  RETURN_IF_ERROR(cudnn::ToStatus(cudaGraphUpload(exec, stream), "upload a graph"));
  RETURN_IF_ERROR(cudnn::ToStatus(cudaStreamSynchronize(stream), "upload a graph"));
  return captured;
}

CapturedGraph::~CapturedGraph() {
  if (exec_ != nullptr) {
    cudaGraphExecDestroy(exec_);
  }
}

absl::Status CapturedGraph::Launch(cudaStream_t stream) const {
  return cudnn::ToStatus(cudaGraphLaunch(exec_, stream), "replay a graph");
}

}  // namespace convtune::worker::device

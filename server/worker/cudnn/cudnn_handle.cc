#include "server/worker/cudnn/cudnn_handle.h"

#include "proto/base/status_macros.h"
#include "server/worker/cudnn/cudnn_status.h"

namespace convtune::worker::cudnn {

absl::StatusOr<CudnnHandle> CudnnHandle::Create(cudaStream_t stream) {
  CudnnHandle handle;
  RETURN_IF_ERROR(ToStatus(cudnnCreate(&handle.raw_), "create a cuDNN handle"));
  RETURN_IF_ERROR(ToStatus(cudnnSetStream(handle.raw_, stream), "set cuDNN's stream"));
  return handle;
}

CudnnHandle::~CudnnHandle() {
  if (raw_ != nullptr) {
    cudnnDestroy(raw_);
  }
}

}  // namespace convtune::worker::cudnn

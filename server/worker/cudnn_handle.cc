#include "server/worker/cudnn_handle.h"

#include "proto/base/status_macros.h"
#include "server/worker/cudnn_status.h"

namespace convtune {

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

absl::StatusOr<LaneHandles> LaneHandles::Create(int ordinal, cudaStream_t stream) {
  LaneHandles handles;
  handles.ordinal_ = ordinal;
  handles.stream_ = stream;
  RETURN_IF_ERROR(handles.Get(0).status());
  return handles;
}

absl::StatusOr<cudnnHandle_t> LaneHandles::Get(int lane) {
  CudnnHandle& handle = handles_[static_cast<size_t>(lane)];
  // Lanes' threads come and go, and start with card 0.
  RETURN_IF_ERROR(ToStatus(cudaSetDevice(ordinal_), "select the GPU"));
  if (handle.get() == nullptr) {
    ASSIGN_OR_RETURN(handle, CudnnHandle::Create(stream_));
  }
  return handle.get();
}

}  // namespace convtune

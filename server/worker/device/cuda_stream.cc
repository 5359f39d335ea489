#include "server/worker/device/cuda_stream.h"

#include <atomic>
#include <new>

#include "proto/base/status_macros.h"
#include "server/worker/cudnn/cudnn_status.h"

namespace convtune::worker::device {

absl::StatusOr<std::unique_ptr<CudaStream>> CudaStream::Create(cudaStream_t stream,
                                                               Kernels* kernels, int64_t l2_bytes) {
  std::unique_ptr<CudaStream> created(new CudaStream(stream, kernels));
  void* host = nullptr;
  RETURN_IF_ERROR(cudnn::ToStatus(cudaHostAlloc(&host, sizeof(Shared), cudaHostAllocMapped),
                                  "allocate memory that the GPU sees"));
  created->host_memory_.reset(host);
  created->shared_ = new (host) Shared();
  RETURN_IF_ERROR(cudnn::ToStatus(cudaHostGetDevicePointer(&created->shared_on_device_, host, 0),
                                  "find memory that the GPU sees"));
  for (auto& event : created->events_) {
    cudaEvent_t raw = nullptr;
    RETURN_IF_ERROR(cudnn::ToStatus(cudaEventCreate(&raw), "create an event"));
    event.reset(raw);
  }
  ASSIGN_OR_RETURN(created->flush_, DeviceBuffer::Allocate(timing::FlushBytes(l2_bytes)));
  if (created->flush_.bytes() > 0) {
    RETURN_IF_ERROR(cudnn::ToStatus(
        cudaMemset(created->flush_.data(), 0, static_cast<size_t>(created->flush_.bytes())),
        "clear memory"));
    RETURN_IF_ERROR(cudnn::ToStatus(cudaDeviceSynchronize(), "clear memory"));
  }
  return created;
}

void* CudaStream::OnDevice(const volatile void* field) const {
  const auto offset =
      static_cast<const volatile char*>(field) - reinterpret_cast<const volatile char*>(shared_);
  return static_cast<char*>(shared_on_device_) + offset;
}

absl::Status CudaStream::Block(absl::Duration limit) {
  shared_->open = 0;
  shared_->gave_up = 0;
  for (int slot = 0; slot < kStamps; ++slot) {
    shared_->stamps[slot].timer_ns = 0;
  }
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return kernels_->Block(OnDevice(&shared_->open),
                         static_cast<uint64_t>(absl::ToInt64Nanoseconds(limit)));
}

void CudaStream::Release() {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  shared_->open = 1;
}

absl::Status CudaStream::Synchronize() {
  return cudnn::ToStatus(cudaStreamSynchronize(stream_), "wait for the stream");
}

bool CudaStream::GaveUp() const { return shared_->gave_up != 0; }

absl::Status CudaStream::PutStamp(int slot) {
  return kernels_->PutStamp(OnDevice(&shared_->stamps[slot]));
}

Stamp CudaStream::ReadStamp(int slot) const {
  const volatile Stamp& stamp = shared_->stamps[slot];
  return {stamp.timer_ns, stamp.cycles};
}

absl::Status CudaStream::Flush(int64_t read_next) {
  return kernels_->Sweep(flush_.data(), timing::BytesOfFlush(flush_.bytes(), read_next));
}

absl::Status CudaStream::Read(const void* data, int64_t bytes) {
  return kernels_->Sweep(data, bytes);
}

absl::Status CudaStream::Record(int event) {
  return cudnn::ToStatus(cudaEventRecord(events_[static_cast<size_t>(event)].get(), stream_),
                         "record an event");
}

absl::StatusOr<double> CudaStream::ElapsedUs(int first, int second) {
  float milliseconds = 0;
  RETURN_IF_ERROR(
      cudnn::ToStatus(cudaEventElapsedTime(&milliseconds, events_[static_cast<size_t>(first)].get(),
                                           events_[static_cast<size_t>(second)].get()),
                      "read the time"));
  return static_cast<double>(milliseconds) * 1000.0;
}

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

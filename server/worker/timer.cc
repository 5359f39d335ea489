#include "server/worker/timer.h"

#include "absl/time/clock.h"
#include "proto/base/status_macros.h"
#include "server/worker/cudnn_status.h"

namespace convtune {

absl::StatusOr<std::unique_ptr<CudaEventTimer>> CudaEventTimer::Create(cudaStream_t stream) {
  std::unique_ptr<CudaEventTimer> timer(new CudaEventTimer(stream));
  RETURN_IF_ERROR(ToStatus(cudaEventCreate(&timer->start_), "create an event"));
  RETURN_IF_ERROR(ToStatus(cudaEventCreate(&timer->stop_), "create an event"));
  return timer;
}

CudaEventTimer::~CudaEventTimer() {
  if (start_ != nullptr) {
    cudaEventDestroy(start_);
  }
  if (stop_ != nullptr) {
    cudaEventDestroy(stop_);
  }
}

absl::StatusOr<TimedRun> CudaEventTimer::Time(const Launch& launch) {
  RETURN_IF_ERROR(ToStatus(cudaStreamSynchronize(stream_), "wait for the stream"));
  RETURN_IF_ERROR(ToStatus(cudaEventRecord(start_, stream_), "record an event"));
  const absl::Time launching = absl::Now();
  RETURN_IF_ERROR(launch());
  const absl::Duration launched = absl::Now() - launching;
  RETURN_IF_ERROR(ToStatus(cudaEventRecord(stop_, stream_), "record an event"));
  RETURN_IF_ERROR(ToStatus(cudaEventSynchronize(stop_), "wait for the run"));
  float milliseconds = 0;
  RETURN_IF_ERROR(ToStatus(cudaEventElapsedTime(&milliseconds, start_, stop_), "read the time"));
  return TimedRun{static_cast<double>(milliseconds) * 1000.0, absl::ToDoubleMicroseconds(launched),
                  0};
}

}  // namespace convtune

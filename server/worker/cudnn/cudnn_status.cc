#include "server/worker/cudnn/cudnn_status.h"

#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace convtune::worker::cudnn {
namespace {

std::string TakeLastError() {
  std::array<char, 2048> text = {};
  cudnnGetLastErrorString(text.data(), text.size() - 1);
  return std::string(absl::StripTrailingAsciiWhitespace(text.data()));
}

absl::StatusCode CodeOf(cudnnStatus_t status) {
  switch (status) {
    case CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED:
    case CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED:
      return absl::StatusCode::kResourceExhausted;
    default:
      break;
  }
  switch (CUDNN_STATUS_CATEGORY(static_cast<int>(status))) {
    case CUDNN_STATUS_NOT_SUPPORTED:
      return absl::StatusCode::kUnimplemented;
    case CUDNN_STATUS_BAD_PARAM:
      return absl::StatusCode::kInvalidArgument;
    default:
      return absl::StatusCode::kInternal;
  }
}

// The context is as good as before.
bool IsOfCapture(cudaError_t error) {
  return error >= cudaErrorStreamCaptureUnsupported && error <= cudaErrorStreamCaptureWrongThread;
}

}  // namespace

absl::Status ToStatus(cudnnStatus_t status, absl::string_view what) {
  if (status == CUDNN_STATUS_SUCCESS) {
    // It may leave warnings, which not every later call clears.
    char none = '\0';
    cudnnGetLastErrorString(&none, sizeof(none));
    return absl::OkStatus();
  }
  std::string message = absl::StrCat(what, ": ", cudnnGetErrorString(status));
  const std::string detail = TakeLastError();
  if (!detail.empty()) {
    absl::StrAppend(&message, ": ", detail);
  }
  return absl::Status(CodeOf(status), message);
}

absl::Status ToStatus(cudaError_t error, absl::string_view what) {
  if (error == cudaSuccess) {
    return absl::OkStatus();
  }
  cudaGetLastError();  // else a later launch check would report it as its own
  const std::string message =
      absl::StrCat(what, ": ", cudaGetErrorName(error), ": ", cudaGetErrorString(error));
  switch (error) {
    case cudaErrorMemoryAllocation:
      return absl::ResourceExhaustedError(message);
    case cudaErrorNoDevice:
    case cudaErrorInsufficientDriver:
    case cudaErrorStubLibrary:
    case cudaErrorInvalidDevice:
      return absl::UnavailableError(message);
    default:
      return absl::InternalError(message);
  }
}

void Recover(cudaStream_t stream) {
  cudaGraph_t left_open = nullptr;
  if (cudaStreamEndCapture(stream, &left_open) == cudaSuccess) cudaGraphDestroy(left_open);
  cudaGetLastError();
  // The first call after it may report an error that passes.
  if (cudaDeviceSynchronize() == cudaSuccess) return;
  cudaGetLastError();
  const cudaError_t error = cudaDeviceSynchronize();
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "convtune-worker: %s: %s: %s\n",
               IsOfCapture(error) ? "a capture was left open on a stream of cuDNN's own"
                                  : "the CUDA context is lost",
               cudaGetErrorName(error), cudaGetErrorString(error));
  std::abort();
}

}  // namespace convtune::worker::cudnn

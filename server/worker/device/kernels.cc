#include "server/worker/device/kernels.h"

#include <cuda.h>
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <string>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "server/worker/cudnn/cudnn_status.h"

namespace convtune::worker::device {
namespace {

constexpr unsigned int kThreads = 256;
constexpr unsigned int kBlocksPerSm = 8;

}  // namespace

// Not linked but looked up: a machine without a driver has no libcuda.so.1, and
// the worker runs there, too.
struct Kernels::Driver {
  decltype(&::cuModuleLoadDataEx) module_load_data = nullptr;
  decltype(&::cuModuleUnload) module_unload = nullptr;
  decltype(&::cuModuleGetFunction) module_get_function = nullptr;
  decltype(&::cuLaunchKernel) launch_kernel = nullptr;

  CUmodule module = nullptr;
  CUfunction blocking = nullptr;
  CUfunction stamp = nullptr;
  CUfunction sweep = nullptr;
  CUfunction gather = nullptr;
  CUfunction scan = nullptr;

  absl::Status LookUp() {
    void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      return absl::UnavailableError(absl::StrCat("load libcuda.so.1: ", dlerror()));
    }
    const auto find = [library](const char* name, auto* function) {
      *function = reinterpret_cast<std::remove_pointer_t<decltype(function)>>(dlsym(library, name));
      return *function != nullptr;
    };
    if (!find("cuModuleLoadDataEx", &module_load_data) || !find("cuModuleUnload", &module_unload) ||
        !find("cuModuleGetFunction", &module_get_function) ||
        !find("cuLaunchKernel", &launch_kernel)) {
      return absl::UnavailableError("libcuda.so.1 lacks a function of CUDA 12");
    }
    return absl::OkStatus();
  }

  // Puts a kernel with these arguments on the stream.
  template <typename... Arguments>
  absl::Status Launch(const char* what, CUfunction kernel, unsigned int blocks,
                      unsigned int threads, cudaStream_t stream, Arguments... arguments) const {
    std::array<void*, sizeof...(arguments)> pointers = {&arguments...};
    return ToStatus(
        launch_kernel(kernel, blocks, 1, 1, threads, 1, 1, 0, stream, pointers.data(), nullptr),
        what);
  }

  // An error has the same number in the driver and in the runtime, which names it.
  static absl::Status ToStatus(CUresult result, absl::string_view what) {
    return cudnn::ToStatus(static_cast<cudaError_t>(result), what);
  }

  absl::Status Compile() {
    std::array<char, 4096> log = {};
    std::array<CUjit_option, 2> options = {CU_JIT_ERROR_LOG_BUFFER,
                                           CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    std::array<void*, 2> values = {log.data(), reinterpret_cast<void*>(log.size() - 1)};
    const CUresult loaded =
        module_load_data(&module, kKernelsPtx, options.size(), options.data(), values.data());
    if (loaded != CUDA_SUCCESS) {
      module = nullptr;
      return ToStatus(loaded, absl::StrCat("compile the timer's kernels: ", log.data()));
    }
    for (const auto& [name, function] : {std::pair{"convtune_blocking", &blocking},
                                         {"convtune_stamp", &stamp},
                                         {"convtune_sweep", &sweep},
                                         {"convtune_gather", &gather},
                                         {"convtune_scan", &scan}}) {
      RETURN_IF_ERROR(
          ToStatus(module_get_function(function, module, name), absl::StrCat("find ", name)));
    }
    return absl::OkStatus();
  }
};

absl::StatusOr<std::unique_ptr<Kernels>> Kernels::Load(int sm_count, cudaStream_t stream) {
  std::unique_ptr<Kernels> kernels(new Kernels(sm_count, stream));
  RETURN_IF_ERROR(kernels->driver_->LookUp());
  RETURN_IF_ERROR(kernels->driver_->Compile());
  ASSIGN_OR_RETURN(kernels->sink_, DeviceBuffer::Allocate(16));
  RETURN_IF_ERROR(kernels->RunEachOnce());
  return kernels;
}

Kernels::Kernels(int sm_count, cudaStream_t stream)
    : sm_count_(static_cast<unsigned int>(std::max(1, sm_count))),
      stream_(stream),
      driver_(std::make_unique<Driver>()) {}

Kernels::~Kernels() {
  if (driver_->module != nullptr) {
    driver_->module_unload(driver_->module);
  }
}

absl::Status Kernels::RunEachOnce() {
  constexpr int64_t kBytes = 1024;
  ASSIGN_OR_RETURN(const DeviceBuffer buffer, DeviceBuffer::Allocate(kBytes));
  // Offsets of 0, and a gate that is closed: its limit of 0 ends the blocking kernel.
  RETURN_IF_ERROR(
      cudnn::ToStatus(cudaMemsetAsync(buffer.data(), 0, kBytes, stream_), "clear memory"));
  char* const half = static_cast<char*>(buffer.data()) + kBytes / 2;
  RETURN_IF_ERROR(Scan(half, 1, 1, 0xFF, buffer.data()));
  RETURN_IF_ERROR(Gather(half, buffer.data(), 1, 1, half + 8));
  RETURN_IF_ERROR(Sweep(buffer.data(), kBytes));
  RETURN_IF_ERROR(Block(buffer.data(), 0));
  RETURN_IF_ERROR(PutStamp(half));
  return cudnn::ToStatus(cudaStreamSynchronize(stream_), "run the timer's kernels");
}

absl::Status Kernels::Block(void* gate, uint64_t limit_ns) {
  return driver_->Launch("block the stream", driver_->blocking, 1, 1, stream_, gate, limit_ns);
}

absl::Status Kernels::PutStamp(void* stamp) {
  // There are as many blocks as SMs, so that one of them is on SM 0.
  return driver_->Launch("read the clocks", driver_->stamp, sm_count_, 1, stream_, stamp);
}

absl::Status Kernels::Sweep(const void* data, int64_t bytes) {
  const uint64_t count = static_cast<uint64_t>(bytes) / 16;
  if (count == 0) return absl::OkStatus();
  return driver_->Launch("read memory into the cache", driver_->sweep, sm_count_ * kBlocksPerSm,
                         kThreads, stream_, data, count, sink_.data());
}

absl::Status Kernels::Gather(const void* data, const void* offsets, uint32_t count, uint32_t size,
                             void* out) {
  return driver_->Launch("gather elements", driver_->gather, (count + kThreads - 1) / kThreads,
                         kThreads, stream_, data, offsets, count, size, out);
}

absl::Status Kernels::Scan(const void* data, uint64_t count, uint32_t size, uint64_t mask,
                           void* counter) {
  return driver_->Launch("scan an output", driver_->scan, sm_count_ * kBlocksPerSm, kThreads,
                         stream_, data, count, size, mask, counter);
}

}  // namespace convtune::worker::device

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
  decltype(&::cuGetErrorName) get_error_name = nullptr;
  decltype(&::cuGetErrorString) get_error_string = nullptr;
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
    if (!find("cuGetErrorName", &get_error_name) || !find("cuGetErrorString", &get_error_string) ||
        !find("cuModuleLoadDataEx", &module_load_data) || !find("cuModuleUnload", &module_unload) ||
        !find("cuModuleGetFunction", &module_get_function) ||
        !find("cuLaunchKernel", &launch_kernel)) {
      return absl::UnavailableError("libcuda.so.1 lacks a function of CUDA 12");
    }
    return absl::OkStatus();
  }

  absl::Status Check(CUresult result, const std::string& what) const {
    if (result == CUDA_SUCCESS) return absl::OkStatus();
    const char* name = nullptr;
    const char* text = nullptr;
    get_error_name(result, &name);
    get_error_string(result, &text);
    return absl::InternalError(absl::StrCat(what, ": ", name != nullptr ? name : "an error",
                                            text != nullptr ? ": " : "",
                                            text != nullptr ? text : ""));
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
      return Check(loaded, absl::StrCat("compile the timer's kernels: ", log.data()));
    }
    for (const auto& [name, function] : {std::pair{"convtune_blocking", &blocking},
                                         {"convtune_stamp", &stamp},
                                         {"convtune_sweep", &sweep},
                                         {"convtune_gather", &gather},
                                         {"convtune_scan", &scan}}) {
      RETURN_IF_ERROR(
          Check(module_get_function(function, module, name), absl::StrCat("find ", name)));
    }
    return absl::OkStatus();
  }
};

absl::StatusOr<std::unique_ptr<Kernels>> Kernels::Load(int sm_count, cudaStream_t stream) {
  std::unique_ptr<Kernels> kernels(new Kernels(sm_count, stream));
  RETURN_IF_ERROR(kernels->Init());
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

absl::Status Kernels::Init() {
  RETURN_IF_ERROR(driver_->LookUp());
  RETURN_IF_ERROR(driver_->Compile());
  ASSIGN_OR_RETURN(sink_, DeviceBuffer::Allocate(16));
  return RunEachOnce();
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
  std::array<void*, 2> arguments = {&gate, &limit_ns};
  return driver_->Check(driver_->launch_kernel(driver_->blocking, 1, 1, 1, 1, 1, 1, 0, stream_,
                                               arguments.data(), nullptr),
                        "block the stream");
}

absl::Status Kernels::PutStamp(void* stamp) {
  std::array<void*, 1> arguments = {&stamp};
  // As many blocks as there are SMs: one of them is on SM 0.
  return driver_->Check(driver_->launch_kernel(driver_->stamp, sm_count_, 1, 1, 1, 1, 1, 0, stream_,
                                               arguments.data(), nullptr),
                        "read the clocks");
}

absl::Status Kernels::Sweep(const void* data, int64_t bytes) {
  uint64_t count = static_cast<uint64_t>(bytes) / 16;
  if (count == 0) return absl::OkStatus();
  void* sink = sink_.data();
  std::array<void*, 3> arguments = {&data, &count, &sink};
  return driver_->Check(
      driver_->launch_kernel(driver_->sweep, sm_count_ * kBlocksPerSm, 1, 1, kThreads, 1, 1, 0,
                             stream_, arguments.data(), nullptr),
      "read memory into the cache");
}

absl::Status Kernels::Gather(const void* data, const void* offsets, uint32_t count, uint32_t size,
                             void* out) {
  if (count == 0) return absl::OkStatus();
  std::array<void*, 5> arguments = {&data, &offsets, &count, &size, &out};
  return driver_->Check(
      driver_->launch_kernel(driver_->gather, (count + kThreads - 1) / kThreads, 1, 1, kThreads, 1,
                             1, 0, stream_, arguments.data(), nullptr),
      "gather elements");
}

absl::Status Kernels::Scan(const void* data, uint64_t count, uint32_t size, uint64_t mask,
                           void* counter) {
  std::array<void*, 5> arguments = {&data, &count, &size, &mask, &counter};
  return driver_->Check(
      driver_->launch_kernel(driver_->scan, sm_count_ * kBlocksPerSm, 1, 1, kThreads, 1, 1, 0,
                             stream_, arguments.data(), nullptr),
      "scan an output");
}

}  // namespace convtune::worker::device

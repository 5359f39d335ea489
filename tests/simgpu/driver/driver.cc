// The CUDA driver's functions as the simulated GPU has them, after the CUDA
// Driver API's manual. They are in no header: libcuda.so.1 (driver.c) calls them.
#include <cuda.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/simgpu/driver/driver_table.h"
#include "tests/simgpu/faults/faults.h"
#include "tests/simgpu/ptx/interpreter.h"
#include "tests/simgpu/ptx/machine.h"
#include "tests/simgpu/ptx/module.h"
#include "tests/simgpu/ptx/shortcuts.h"
#include "tests/simgpu/runtime/gpu.h"

namespace convtune::simgpu {
namespace {

// Of every kernel. With the gaps of its stream around it an empty one takes 3 us
// from event to event.
constexpr double kLaunchNs = 1000;
constexpr double kSlowFactor = 1000;
// What is larger takes the short cut, where there is one.
constexpr uint64_t kMostThreads = 4096;
constexpr int64_t kMostBytes = 65536;
constexpr unsigned kMaxThreadsPerBlock = 1024;
constexpr unsigned kMaxSharedBytes = 48 * 1024;

// An error has the same number in both APIs.
CUresult ToResult(cudaError_t error) { return static_cast<CUresult>(error); }
static_assert(int{CUDA_ERROR_INVALID_VALUE} == int{cudaErrorInvalidValue});
static_assert(int{CUDA_ERROR_INVALID_HANDLE} == int{cudaErrorInvalidResourceHandle});
static_assert(int{CUDA_ERROR_ILLEGAL_STATE} == int{cudaErrorIllegalState});
static_assert(int{CUDA_ERROR_ILLEGAL_ADDRESS} == int{cudaErrorIllegalAddress});
static_assert(int{CUDA_ERROR_MISALIGNED_ADDRESS} == int{cudaErrorMisalignedAddress});
static_assert(int{CUDA_ERROR_INVALID_PTX} == int{cudaErrorInvalidPtx});
static_assert(int{CUDA_ERROR_JIT_COMPILER_NOT_FOUND} == int{cudaErrorJitCompilerNotFound});
static_assert(int{CUDA_ERROR_JIT_COMPILATION_DISABLED} == int{cudaErrorJitCompilationDisabled});
static_assert(int{CUDA_ERROR_NOT_FOUND} == int{cudaErrorSymbolNotFound});
static_assert(int{CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES} == int{cudaErrorLaunchOutOfResources});
static_assert(int{CUDA_ERROR_NOT_SUPPORTED} == int{cudaErrorNotSupported});
static_assert(int{CUDA_ERROR_LAUNCH_FAILED} == int{cudaErrorLaunchFailure});
static_assert(int{CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED} == int{cudaErrorStreamCaptureUnsupported});
static_assert(int{CUDA_ERROR_STREAM_CAPTURE_INVALIDATED} == int{cudaErrorStreamCaptureInvalidated});

// What a CUmodule and a CUfunction point to.
struct Function {
  const ptx::Kernel* kernel = nullptr;
  bool loaded = false;  // its code is loaded with its first launch
};
struct LoadedModule {
  ptx::Module module;
  std::vector<Function> functions;
};
using ModulePtr = std::shared_ptr<LoadedModule>;

std::vector<ModulePtr>& Modules() {
  static auto& modules = *new std::vector<ModulePtr>();
  return modules;
}

// The module that a handle of a function is of, or null.
ModulePtr ModuleOf(const void* function) {
  for (const ModulePtr& module : Modules()) {
    for (const Function& each : module->functions) {
      if (&each == function) return module;
    }
  }
  return nullptr;
}

class GpuMachine final : public ptx::Machine {
 public:
  explicit GpuMachine(Gpu* gpu) : gpu_(gpu), host_ns_(gpu->NowNs()) {}

  bool Contains(uint64_t address, int64_t bytes) const override {
    return gpu_->memory().Contains(reinterpret_cast<const void*>(address), bytes);
  }
  bool IsMapped(uint64_t address) const override {
    return gpu_->memory().IsMapped(reinterpret_cast<const void*>(address));
  }
  uint64_t TimerAt(int64_t ns) const override { return gpu_->TimerAt(ns); }
  uint64_t CyclesAt(int64_t ns) const override { return gpu_->CyclesAt(ns); }
  int64_t HostNs() const override { return host_ns_; }
  uint32_t sm_count() const override { return static_cast<uint32_t>(gpu_->profile().sm_count); }
  bool no_sm_0() const override { return gpu_->settings().no_sm_0; }

 private:
  Gpu* const gpu_;
  const int64_t host_ns_;
};

struct Launch {
  // A graph may outlive the module whose kernels it has.
  std::weak_ptr<LoadedModule> module;
  const ptx::Kernel* kernel = nullptr;
  ptx::Grid grid;
  std::vector<uint64_t> arguments;
  bool first = false;
  std::optional<Action> fault;
};

// How long the kernel's memory takes: what is in the L2 cache from there, by the
// SM's clock, and the rest from memory.
double TrafficNs(Gpu* gpu, const Span& span) {
  const auto missed = static_cast<double>(gpu->l2().Touch(span));
  const GpuProfile& profile = gpu->profile();
  const double hit = static_cast<double>(span.bytes) - missed;
  return 1e9 * (missed / profile.memory_bytes_per_second +
                hit / profile.l2_bytes_per_second * profile.sm_clock_mhz / gpu->SmClockMhz());
}

// True if it was a blocking kernel that ended as the host opened its gate.
bool EndedByHost(const Launch& launch, const GpuMachine& machine) {
  if (launch.kernel->name != "convtune_blocking" || !machine.Contains(launch.arguments[0], 8)) {
    return false;
  }
  const auto* const gate = reinterpret_cast<const uint32_t*>(launch.arguments[0]);
  return gate[0] != 0 && gate[1] == 0;
}

WorkEnd RunLaunch(const Launch& launch, const WorkStart& start) {
  Gpu& gpu = Gpu::Get();
  if (launch.fault == Action::kHang) Hang();
  if (launch.fault == Action::kSticky) return {start.ns, cudaErrorLaunchFailure};
  const ModulePtr module = launch.module.lock();
  if (module == nullptr) return {start.ns, cudaErrorIllegalAddress};
  const GpuMachine machine(&gpu);
  // Without noise: how often the self-check runs our kernels is the host's affair, and
  // would shift the noise of all that follows.
  const int64_t begin = start.ns + kLaunchNs;
  const ptx::Shortcut* const shortcut = ptx::FindShortcut(launch.kernel->name, launch.arguments);
  ptx::RunEnd end = {begin, cudaSuccess};
  bool ended_by_host = false;
  if (shortcut == nullptr) {
    end = ptx::Run(*launch.kernel, launch.grid, launch.arguments, begin, machine);
    ended_by_host = EndedByHost(launch, machine);
    if (ended_by_host) end.ns = Gpu::AlignUp(end.ns);
  } else {
    // The first launch and small ones run instruction by instruction, so that
    // the text itself is tried in every worker. The time is the same model's.
    const Span traffic = shortcut->traffic(launch.arguments);
    const bool interpret =
        launch.first || (uint64_t{launch.grid.blocks} * launch.grid.threads <= kMostThreads &&
                         traffic.bytes <= kMostBytes);
    end.error = interpret
                    ? ptx::Run(*launch.kernel, launch.grid, launch.arguments, begin, machine).error
                    : shortcut->run(launch.arguments, launch.grid, machine);
    if (end.error == cudaSuccess) {
      end.ns += static_cast<int64_t>(TrafficNs(&gpu, traffic));
    }
  }
  if (launch.fault == Action::kSlow) {
    end.ns = start.ns + static_cast<int64_t>(kSlowFactor) * (end.ns - start.ns);
  }
  return {end.ns, end.error, ended_by_host};
}

// Puts the compiler's words where the caller wants them, and how many there are.
void WriteLog(std::string_view words, unsigned count, const int* options, void** values) {
  char* buffer = nullptr;
  void** size = nullptr;
  for (unsigned i = 0; i < count; ++i) {
    if (options[i] == CU_JIT_ERROR_LOG_BUFFER) buffer = static_cast<char*>(values[i]);
    if (options[i] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES) size = &values[i];
  }
  if (buffer == nullptr || size == nullptr) return;
  // With the zero at the end.
  const size_t room = reinterpret_cast<size_t>(*size);
  const size_t length = std::min(words.size(), std::max<size_t>(room, 1) - 1);
  if (room > 0) {
    std::memcpy(buffer, words.data(), length);
    buffer[length] = '\0';
  }
  *size = reinterpret_cast<void*>(length);
}

CUresult Load(void** handle, const char* text, std::string* log) {
  Gpu& gpu = Gpu::Get();
  if (const cudaError_t error = gpu.WaitForIdle(); error != cudaSuccess) return ToResult(error);
  const char* const disabled = std::getenv("CUDA_DISABLE_PTX_JIT");
  if (disabled != nullptr && std::string_view(disabled) == "1") {
    return CUDA_ERROR_JIT_COMPILATION_DISABLED;
  }
  const std::optional<Action> fault = FaultAt({{"jit", ""}});
  if (fault == Action::kHang) Hang();
  if (fault.has_value()) {
    *log = "the compiler of PTX was not found";
    return CUDA_ERROR_JIT_COMPILER_NOT_FOUND;
  }
  absl::StatusOr<ptx::Module> parsed = ptx::Module::Parse(text);
  if (!parsed.ok()) {
    *log = std::string(parsed.status().message());
    return CUDA_ERROR_INVALID_PTX;
  }
  const auto module = std::make_shared<LoadedModule>();
  module->module = *std::move(parsed);
  for (const ptx::Kernel& kernel : module->module.kernels()) {
    module->functions.push_back({&kernel, false});
  }
  Modules().push_back(module);
  *handle = module.get();
  return CUDA_SUCCESS;
}

int ModuleLoadDataEx(void** module, const void* image, unsigned option_count, int* options,
                     void** values) {
  // Nobody calls cuInit: a function of the runtime has to come first.
  if (!Gpu::Get().has_context()) return CUDA_ERROR_NOT_INITIALIZED;
  if (Gpu::Get().sticky() != cudaSuccess) return ToResult(Gpu::Get().sticky());
  if (module == nullptr || image == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::string log;
  const CUresult result = Load(module, static_cast<const char*>(image), &log);
  WriteLog(log, option_count, options, values);
  return result;
}

int ModuleUnload(void* module) {
  Gpu& gpu = Gpu::Get();
  if (gpu.sticky() != cudaSuccess) return ToResult(gpu.sticky());
  const auto found = std::find_if(Modules().begin(), Modules().end(),
                                  [module](const ModulePtr& each) { return each.get() == module; });
  if (found == Modules().end()) return CUDA_ERROR_INVALID_HANDLE;
  if (const cudaError_t error = gpu.WaitForIdle(); error != cudaSuccess) return ToResult(error);
  Modules().erase(found);
  return CUDA_SUCCESS;
}

int ModuleGetFunction(void** function, void* module, const char* name) {
  if (Gpu::Get().sticky() != cudaSuccess) return ToResult(Gpu::Get().sticky());
  if (function == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (const ModulePtr& each : Modules()) {
    if (each.get() != module) continue;
    for (Function& candidate : each->functions) {
      if (candidate.kernel->name != name) continue;
      *function = &candidate;
      return CUDA_SUCCESS;
    }
    return CUDA_ERROR_NOT_FOUND;
  }
  return CUDA_ERROR_INVALID_HANDLE;
}

int LaunchKernel(void* handle, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                 unsigned block_y, unsigned block_z, unsigned shared_bytes, void* stream,
                 void** parameters, void** extra) {
  Gpu& gpu = Gpu::Get();
  if (gpu.sticky() != cudaSuccess) return ToResult(gpu.sticky());
  Launch launch;
  const ModulePtr module = ModuleOf(handle);
  if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  launch.module = module;
  auto* const function = static_cast<Function*>(handle);
  launch.kernel = function->kernel;
  if (grid_x == 0 || grid_x > INT32_MAX || block_x == 0 || block_x > kMaxThreadsPerBlock ||
      shared_bytes > kMaxSharedBytes ||
      (parameters == nullptr && !launch.kernel->parameters.empty())) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  // The simulated GPU has one dimension, and no other way to pass parameters.
  if (grid_y != 1 || grid_z != 1 || block_y != 1 || block_z != 1 || extra != nullptr) {
    return grid_y * grid_z * block_y * block_z == 0 ? CUDA_ERROR_INVALID_VALUE
                                                    : CUDA_ERROR_NOT_SUPPORTED;
  }
  launch.grid = {grid_x, block_x};
  // They are copied before the call returns.
  for (size_t i = 0; i < launch.kernel->parameters.size(); ++i) {
    uint64_t value = 0;
    std::memcpy(&value, parameters[i], static_cast<size_t>(launch.kernel->parameters[i].bytes));
    launch.arguments.push_back(value);
  }
  launch.fault = FaultAt({{"kernel", launch.kernel->name}});
  if (launch.fault == Action::kFail) return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  if (launch.fault == Action::kAbort) std::abort();
  launch.first = !function->loaded;
  if (launch.first) {
    if (const cudaError_t error = gpu.WaitForIdle(); error != cudaSuccess) return ToResult(error);
    function->loaded = true;
  }
  const auto work = std::make_shared<Work>();
  work->waits_for_host = launch.kernel->name == "convtune_blocking";
  work->run = [launch = std::move(launch)](const WorkStart& start) {
    return RunLaunch(launch, start);
  };
  return ToResult(gpu.Put(static_cast<cudaStream_t>(stream), work));
}

constexpr SimgpuDriverTable kTable = {ModuleLoadDataEx, ModuleUnload, ModuleGetFunction,
                                      LaunchKernel};

// Before main, so that nobody has to call it.
__attribute__((constructor)) void SetTable() { SimgpuSetDriverTable(&kTable); }

}  // namespace
}  // namespace convtune::simgpu

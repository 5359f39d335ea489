// The functions of the CUDA Runtime API that the worker calls, on the simulated
// GPU. They stand in for libcudart_static, at link time. Sources: CUDA Runtime
// API, "API synchronization behavior", "Stream Management" and "Error Handling".
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "tests/simgpu/faults/faults.h"
#include "tests/simgpu/runtime/gpu.h"

namespace convtune::simgpu {
namespace {

constexpr double kPciBytesPerSecond = 25e9;
constexpr int64_t kCopyNs = 2000;
// The step of cudaEventElapsedTime, by its manual.
constexpr int64_t kEventStepNs = 500;

struct Event {
  int records = 0;  // so many calls to record it
  int reached = 0;  // which of them the GPU came to last
  bool captured = false;
  int64_t ns = 0;
};

std::map<cudaEvent_t, std::shared_ptr<Event>>& Events() {
  static auto& events = *new std::map<cudaEvent_t, std::shared_ptr<Event>>();
  return events;
}

cudaError_t& LastError() {
  static cudaError_t error = cudaSuccess;
  return error;
}

// What every function returns by: the last error is kept until cudaGetLastError,
// and nothing works in a context that was destroyed.
cudaError_t Return(cudaError_t error) {
  if (Gpu::Get().sticky() != cudaSuccess) error = Gpu::Get().sticky();
  if (error != cudaSuccess) LastError() = error;
  return error;
}

// The context as it is, and nothing of a capture that the call would break.
cudaError_t Allowed() {
  const cudaError_t sticky = Gpu::Get().sticky();
  return sticky != cudaSuccess ? sticky : Gpu::Get().Forbidden();
}

// The error that a fault makes of a function's call; cudaSuccess if the call goes on.
cudaError_t DoFault(const char* function) {
  const std::optional<Action> fault = FaultOfCall(function);
  if (fault == Action::kLost) Gpu::Get().Lose(cudaErrorIllegalAddress);
  return fault == Action::kFail ? cudaErrorUnknown : cudaSuccess;
}
#define SIMGPU_FAULTS_OF_THIS_CALL() \
  if (const cudaError_t fault = DoFault(__func__); fault != cudaSuccess) return Return(fault)

#define SIMGPU_RETURN_IF_ERROR(expression) \
  if (const cudaError_t error = (expression); error != cudaSuccess) return Return(error)

int64_t TimeOf(double bytes, double bytes_per_second) {
  return kCopyNs + static_cast<int64_t>(bytes / bytes_per_second * 1e9);
}

WorkPtr Copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  return std::make_shared<Work>(Work{[=](const WorkStart& start) -> WorkEnd {
    Gpu& gpu = Gpu::Get();
    const auto size = static_cast<int64_t>(bytes);
    const bool reads = kind != cudaMemcpyHostToDevice;
    const bool writes = kind != cudaMemcpyDeviceToHost;
    if ((reads && !gpu.memory().Contains(from, size)) ||
        (writes && !gpu.memory().Contains(to, size))) {
      return {start.ns, cudaErrorIllegalAddress};
    }
    std::memcpy(to, from, bytes);
    if (reads) gpu.l2().Touch({from, size});
    if (writes) gpu.l2().Touch({to, size});
    const double rate =
        reads && writes ? gpu.profile().memory_bytes_per_second / 2 : kPciBytesPerSecond;
    return {start.ns + TimeOf(static_cast<double>(bytes), rate)};
  }});
}

WorkPtr Fill(void* to, int value, size_t bytes) {
  return std::make_shared<Work>(Work{[=](const WorkStart& start) -> WorkEnd {
    Gpu& gpu = Gpu::Get();
    const auto size = static_cast<int64_t>(bytes);
    if (!gpu.memory().Contains(to, size)) return {start.ns, cudaErrorIllegalAddress};
    std::memset(to, value, bytes);
    gpu.l2().Touch({to, size});
    return {start.ns + TimeOf(static_cast<double>(bytes), gpu.profile().memory_bytes_per_second)};
  }});
}

// Pointers that can never be right are refused at the call, and so is memory of
// the GPU where memory of the host should be.
bool IsCopy(void* to, const void* from, cudaMemcpyKind kind) {
  const DeviceMemory& memory = Gpu::Get().memory();
  const auto is_hosts = [&](const void* data) {
    return !memory.Contains(data, 1) || memory.IsMapped(data);
  };
  switch (kind) {
    case cudaMemcpyHostToDevice:
      return memory.Contains(to, 0) && is_hosts(from);
    case cudaMemcpyDeviceToHost:
      return memory.Contains(from, 0) && is_hosts(to);
    case cudaMemcpyDeviceToDevice:
      return memory.Contains(to, 0) && memory.Contains(from, 0);
    default:
      return false;
  }
}

struct ErrorWords {
  cudaError_t error;
  const char* name;
  const char* words;
};
#define CONVTUNE_ERROR(name, words) \
  { name, #name, words }
constexpr ErrorWords kErrors[] = {
    CONVTUNE_ERROR(cudaSuccess, "no error"),
    CONVTUNE_ERROR(cudaErrorInvalidValue, "invalid argument"),
    CONVTUNE_ERROR(cudaErrorMemoryAllocation, "out of memory"),
    CONVTUNE_ERROR(cudaErrorInvalidDevice, "invalid device ordinal"),
    CONVTUNE_ERROR(cudaErrorInvalidPtx, "a PTX JIT compilation failed"),
    CONVTUNE_ERROR(cudaErrorJitCompilerNotFound, "PTX JIT compiler library not found"),
    CONVTUNE_ERROR(cudaErrorJitCompilationDisabled, "PTX JIT compilation was disabled"),
    CONVTUNE_ERROR(cudaErrorInvalidResourceHandle, "invalid resource handle"),
    CONVTUNE_ERROR(cudaErrorIllegalState, "the operation cannot be performed in the present state"),
    CONVTUNE_ERROR(cudaErrorSymbolNotFound, "named symbol not found"),
    CONVTUNE_ERROR(cudaErrorNotReady, "device not ready"),
    CONVTUNE_ERROR(cudaErrorIllegalAddress, "an illegal memory access was encountered"),
    CONVTUNE_ERROR(cudaErrorLaunchOutOfResources, "too many resources requested for launch"),
    CONVTUNE_ERROR(cudaErrorMisalignedAddress, "misaligned address"),
    CONVTUNE_ERROR(cudaErrorLaunchFailure, "unspecified launch failure"),
    CONVTUNE_ERROR(cudaErrorNotSupported, "operation not supported"),
    CONVTUNE_ERROR(cudaErrorStreamCaptureUnsupported,
                   "operation not permitted when stream is capturing"),
    CONVTUNE_ERROR(cudaErrorStreamCaptureInvalidated,
                   "operation failed due to a previous error during capture"),
    CONVTUNE_ERROR(cudaErrorCapturedEvent,
                   "operation not permitted on an event last recorded in a capturing stream"),
    CONVTUNE_ERROR(cudaErrorStreamCaptureUnjoined, "capturing stream has unjoined work"),
    CONVTUNE_ERROR(cudaErrorUnknown, "unknown error"),
};
#undef CONVTUNE_ERROR

const ErrorWords* WordsOf(cudaError_t error) {
  for (const ErrorWords& row : kErrors) {
    if (row.error == error) return &row;
  }
  return nullptr;
}

int AttributeOf(cudaDeviceAttr attribute) {
  const GpuProfile& profile = Gpu::Get().profile();
  switch (attribute) {
    case cudaDevAttrL2CacheSize:
      return static_cast<int>(profile.l2_bytes);
    case cudaDevAttrClockRate:
      return static_cast<int>(profile.sm_clock_mhz * 1000);
    case cudaDevAttrMemoryClockRate:
      return profile.memory_clock_khz;
    case cudaDevAttrGlobalMemoryBusWidth:
      return profile.memory_bus_bits;
    case cudaDevAttrMultiProcessorCount:
      return profile.sm_count;
    case cudaDevAttrCooperativeLaunch:
      return 1;
    default:
      Refuse("device attribute " + std::to_string(attribute) + " has no value here");
  }
}

}  // namespace
}  // namespace convtune::simgpu

using namespace convtune::simgpu;  // NOLINT: the functions below are C's

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  SIMGPU_FAULTS_OF_THIS_CALL();
  *count = 1;
  return Return(Gpu::Get().sticky());
}

cudaError_t cudaSetDevice(int ordinal) {
  SIMGPU_FAULTS_OF_THIS_CALL();
  if (ordinal != 0) return Return(cudaErrorInvalidDevice);
  Gpu::Get().MakeContext();
  return Return(Gpu::Get().sticky());
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int ordinal) {
  SIMGPU_FAULTS_OF_THIS_CALL();
  if (ordinal != 0) return Return(cudaErrorInvalidDevice);
  const GpuProfile& profile = Gpu::Get().profile();
  *p = {};
  std::snprintf(p->name, sizeof(p->name), "%s", profile.name.c_str());
  std::memcpy(p->uuid.bytes, "simulated GPU 00", sizeof(p->uuid.bytes));
  p->major = profile.cc_major;
  p->minor = profile.cc_minor;
  const nlohmann::json card = nlohmann::json::parse(profile.device_properties);
  const auto set = [&card](const char* key, auto* value) { card.at(key).get_to(*value); };
  set("isTccDriver", &p->tccDriver);
  set("l2CacheSize", &p->l2CacheSize);
  set("maxBlockSize", &p->maxThreadsDim);
  set("maxCtasPerSM", &p->maxBlocksPerMultiProcessor);
  set("maxGridSize", &p->maxGridSize);
  set("maxRegistersPerSM", &p->regsPerMultiprocessor);
  set("maxSharedMemoryPerBlock", &p->sharedMemPerBlock);
  set("maxSharedMemoryPerBlockOptin", &p->sharedMemPerBlockOptin);
  set("maxThreadsPerBlock", &p->maxThreadsPerBlock);
  set("maxThreadsPerSM", &p->maxThreadsPerMultiProcessor);
  set("multiProcessorCount", &p->multiProcessorCount);
  set("pciDeviceId", &p->pciDeviceID);
  set("regsPerBlock", &p->regsPerBlock);
  set("reservedSharedMemoryPerBlock", &p->reservedSharedMemPerBlock);
  set("totalGlobalMem", &p->totalGlobalMem);
  set("warpSize", &p->warpSize);
  return Return(Gpu::Get().sticky());
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int ordinal) {
  SIMGPU_FAULTS_OF_THIS_CALL();
  if (ordinal != 0) return Return(cudaErrorInvalidDevice);
  *value = AttributeOf(attribute);
  return Return(Gpu::Get().sticky());
}

cudaError_t cudaDeviceGetPCIBusId(char* id, int size, int ordinal) {
  SIMGPU_FAULTS_OF_THIS_CALL();
  if (ordinal != 0) return Return(cudaErrorInvalidDevice);
  constexpr char kId[] = "0000:01:00.0";
  if (size < static_cast<int>(sizeof(kId))) return Return(cudaErrorInvalidValue);
  std::memcpy(id, kId, sizeof(kId));
  return Return(Gpu::Get().sticky());
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = Gpu::Get().profile().driver_version;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

const char* cudaGetErrorName(cudaError_t error) {
  const ErrorWords* const words = WordsOf(error);
  return words != nullptr ? words->name : "unrecognized error code";
}

const char* cudaGetErrorString(cudaError_t error) {
  const ErrorWords* const words = WordsOf(error);
  return words != nullptr ? words->words : "unrecognized error code";
}

cudaError_t cudaGetLastError(void) {
  const cudaError_t sticky = Gpu::Get().sticky();
  const cudaError_t last = std::exchange(LastError(), cudaSuccess);
  return sticky != cudaSuccess ? sticky : last;
}

// Of a GPU with a stream that is captured, in whatever mode, it is never allowed.
cudaError_t cudaDeviceSynchronize(void) {
  SIMGPU_FAULTS_OF_THIS_CALL();
  const cudaError_t error = Gpu::Get().Forbidden(/*even_if_relaxed=*/true);
  return Return(error != cudaSuccess ? error : Gpu::Get().WaitForIdle());
}

cudaError_t cudaMalloc(void** data, size_t bytes) {
  const Site site = {{"malloc", std::to_string(bytes)}};
  if (const std::optional<Action> fault = FaultAt(site); fault.has_value()) {
    if (*fault == Action::kFail) return Return(cudaErrorMemoryAllocation);
    Gpu::Get().Lose(cudaErrorIllegalAddress);
  }
  SIMGPU_RETURN_IF_ERROR(Gpu::Get().WaitForIdle());
  Gpu::Get().MakeContext();
  return Return(Gpu::Get().memory().Allocate(static_cast<int64_t>(bytes), data));
}

cudaError_t cudaFree(void* data) {
  SIMGPU_FAULTS_OF_THIS_CALL();
  SIMGPU_RETURN_IF_ERROR(Gpu::Get().WaitForIdle());
  Gpu::Get().l2().Forget({data, Gpu::Get().memory().BytesAt(data)});
  return Return(Gpu::Get().memory().Free(data));
}

cudaError_t cudaHostAlloc(void** data, size_t bytes, unsigned int /*flags*/) {
  SIMGPU_FAULTS_OF_THIS_CALL();
  SIMGPU_RETURN_IF_ERROR(Gpu::Get().WaitForIdle());
  return Return(Gpu::Get().memory().Allocate(static_cast<int64_t>(bytes), data, /*mapped=*/true));
}

cudaError_t cudaHostGetDevicePointer(void** on_device, void* on_host, unsigned int /*flags*/) {
  SIMGPU_FAULTS_OF_THIS_CALL();
  if (!Gpu::Get().memory().IsMapped(on_host)) return Return(cudaErrorInvalidValue);
  *on_device = on_host;
  return Return(Gpu::Get().sticky());
}

cudaError_t cudaFreeHost(void* data) {
  SIMGPU_FAULTS_OF_THIS_CALL();
  SIMGPU_RETURN_IF_ERROR(Gpu::Get().WaitForIdle());
  return Return(Gpu::Get().memory().Free(data, /*mapped=*/true));
}

cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  SIMGPU_FAULTS_OF_THIS_CALL();
  *free_bytes = static_cast<size_t>(Gpu::Get().memory().free_bytes());
  *total_bytes = static_cast<size_t>(Gpu::Get().memory().total_bytes());
  return Return(Gpu::Get().sticky());
}

// A copy to the host returns once it is done. One from pageable memory returns once
// it has read it: it is on its way then, and who does not wait for the default
// stream does not find it. Copies within the GPU do not wait (nor do fills): the
// manual promises no synchronisation.
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  SIMGPU_FAULTS_OF_THIS_CALL();
  SIMGPU_RETURN_IF_ERROR(Allowed());
  if (bytes == 0) return cudaSuccess;
  if (!IsCopy(to, from, kind)) return Return(cudaErrorInvalidValue);
  if (kind == cudaMemcpyHostToDevice && !Gpu::Get().memory().IsMapped(from)) {
    SIMGPU_RETURN_IF_ERROR(Gpu::Get().WaitForIdle());
    const auto staged = std::make_shared<std::string>(static_cast<const char*>(from), bytes);
    const WorkPtr copy = Copy(to, staged->data(), bytes, kind);
    return Return(Gpu::Get().Put(
        nullptr, std::make_shared<Work>(
                     Work{[staged, copy](const WorkStart& start) { return copy->run(start); }})));
  }
  const cudaError_t put = Gpu::Get().Put(nullptr, Copy(to, from, bytes, kind));
  if (put != cudaSuccess || kind == cudaMemcpyDeviceToDevice) return Return(put);
  // Unkinder than the manual, which has no other stream waited for.
  return Return(Gpu::Get().WaitForIdle());
}

// Memory of the host is read and written when the stream gets there. Where it is
// pageable, the call may wait for what the stream has to do before.
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  SIMGPU_FAULTS_OF_THIS_CALL();
  if (bytes == 0) return Return(Gpu::Get().sticky());
  if (!IsCopy(to, from, kind)) return Return(cudaErrorInvalidValue);
  // Of pageable memory there is none in a graph.
  if (Gpu::Get().IsCapturing(stream) && kind != cudaMemcpyDeviceToDevice) {
    return Return(Gpu::Get().Wait(stream));
  }
  const bool pinned = Gpu::Get().memory().IsMapped(kind == cudaMemcpyHostToDevice ? from : to);
  if (kind != cudaMemcpyDeviceToDevice && !pinned) {
    SIMGPU_RETURN_IF_ERROR(Gpu::Get().Wait(stream));
  }
  return Return(Gpu::Get().Put(stream, Copy(to, from, bytes, kind)));
}

cudaError_t cudaMemset(void* to, int value, size_t bytes) {
  SIMGPU_FAULTS_OF_THIS_CALL();
  SIMGPU_RETURN_IF_ERROR(Allowed());
  return cudaMemsetAsync(to, value, bytes, nullptr);
}

cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  SIMGPU_FAULTS_OF_THIS_CALL();
  if (bytes == 0) return Return(Gpu::Get().sticky());
  if (!Gpu::Get().memory().Contains(to, 0)) return Return(cudaErrorInvalidValue);
  return Return(Gpu::Get().Put(stream, Fill(to, value, bytes)));
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int flags) {
  SIMGPU_FAULTS_OF_THIS_CALL();
  if (flags != cudaStreamNonBlocking) Refuse("only non-blocking streams are simulated");
  SIMGPU_RETURN_IF_ERROR(Allowed());
  *stream = Gpu::Get().CreateStream();
  return cudaSuccess;
}

// These are the Gpu's, with the faults of any call.
#define SIMGPU_FORWARD(function, parameters, call) \
  cudaError_t function parameters {                \
    SIMGPU_FAULTS_OF_THIS_CALL();                  \
    return Return(Gpu::Get().call);                \
  }
SIMGPU_FORWARD(cudaStreamDestroy, (cudaStream_t stream), DestroyStream(stream))
SIMGPU_FORWARD(cudaStreamSynchronize, (cudaStream_t stream), Wait(stream))
SIMGPU_FORWARD(cudaStreamBeginCapture, (cudaStream_t stream, cudaStreamCaptureMode mode),
               BeginCapture(stream, mode))
SIMGPU_FORWARD(cudaStreamEndCapture, (cudaStream_t stream, cudaGraph_t* graph),
               EndCapture(stream, graph))
SIMGPU_FORWARD(cudaGraphInstantiateWithFlags,
               (cudaGraphExec_t * exec, cudaGraph_t graph,
                unsigned long long /*flags*/),  // NOLINT: CUDA's type
               Instantiate(graph, exec))
SIMGPU_FORWARD(cudaGraphUpload, (cudaGraphExec_t exec, cudaStream_t stream), Upload(exec, stream))
SIMGPU_FORWARD(cudaGraphLaunch, (cudaGraphExec_t exec, cudaStream_t stream),
               LaunchGraph(exec, stream))
SIMGPU_FORWARD(cudaGraphDestroy, (cudaGraph_t graph), DestroyGraph(graph))
SIMGPU_FORWARD(cudaGraphExecDestroy, (cudaGraphExec_t exec), DestroyExec(exec))

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  SIMGPU_FAULTS_OF_THIS_CALL();
  if (Gpu::Get().sticky() != cudaSuccess) return Return(Gpu::Get().sticky());
  auto created = std::make_shared<Event>();
  *event = reinterpret_cast<cudaEvent_t>(created.get());
  Events()[*event] = std::move(created);
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  SIMGPU_FAULTS_OF_THIS_CALL();
  if (Events().erase(event) == 0) return Return(cudaErrorInvalidResourceHandle);
  return Return(Gpu::Get().sticky());
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  SIMGPU_FAULTS_OF_THIS_CALL();
  const auto found = Events().find(event);
  if (found == Events().end()) return Return(cudaErrorInvalidResourceHandle);
  const std::shared_ptr<Event> recorded = found->second;
  const int record = recorded->records + 1;
  // In a capture it becomes an order of the graph's nodes: no replay records it.
  const bool captured = Gpu::Get().IsCapturing(stream);
  const cudaError_t put = Gpu::Get().Put(
      stream,
      std::make_shared<Work>(Work{[recorded, record, captured](const WorkStart& start) -> WorkEnd {
        if (captured) return {start.ns};
        recorded->reached = std::max(recorded->reached, record);
        if (recorded->reached == record) recorded->ns = start.ns;
        return {start.ns};
      }}));
  if (put != cudaSuccess) return Return(put);
  recorded->records = record;
  recorded->captured = captured;
  return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t first, cudaEvent_t second) {
  SIMGPU_FAULTS_OF_THIS_CALL();
  const auto from = Events().find(first);
  const auto to = Events().find(second);
  if (from == Events().end() || to == Events().end() || from->second->records == 0 ||
      to->second->records == 0) {
    return Return(cudaErrorInvalidResourceHandle);
  }
  for (const Event* event : {from->second.get(), to->second.get()}) {
    if (event->captured) return Return(cudaErrorCapturedEvent);
    // What runs early still ends at its time.
    if (event->reached != event->records || event->ns > Gpu::Get().NowNs()) {
      return Return(cudaErrorNotReady);
    }
  }
  // Where in a step the first event falls is the seed's, not the host's, so that
  // a run can be replayed.
  const double phase = Gpu::Get().Noise("event", 0.25) - 1;
  const auto phase_ns = static_cast<int64_t>((phase + 0.5) * kEventStepNs);
  const int64_t ns = to->second->ns - from->second->ns;
  *milliseconds = static_cast<float>((ns + phase_ns) / kEventStepNs * kEventStepNs) / 1e6F;
  return Return(Gpu::Get().sticky());
}

}  // extern "C"

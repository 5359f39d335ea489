// cuDNN's handles and graph API above the simulated GPU. Descriptors, lists, plans, workspaces and
// notes are the real library's, which is given the GPU's properties wherever it is given a handle.
#include <cudnn.h>

#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "proto/model/tuning/candidate.h"
#include "server/worker/search/graph_listing.h"
#include "tests/simgpu/cudnn/execution.h"
#include "tests/simgpu/runtime/gpu.h"

extern "C" cudnnStatus_t __real_cudnnBackendSetAttribute(cudnnBackendDescriptor_t,
                                                         cudnnBackendAttributeName_t,
                                                         cudnnBackendAttributeType_t, int64_t,
                                                         const void*);
extern "C" cudnnStatus_t __real_cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t);
extern "C" void __real_cudnnGetLastErrorString(char*, size_t);

namespace convtune::simgpu {
namespace {

using worker::cudnn::Descriptor;

constexpr int64_t kMostJsonBytes = 1 << 20;

cudnnStatus_t Get(cudnnBackendDescriptor_t from, cudnnBackendAttributeName_t name,
                  cudnnBackendAttributeType_t type, int64_t most, void* values) {
  int64_t count = 0;
  return cudnnBackendGetAttribute(from, name, type, most, &count, values);
}

// CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, or ends the process where a plan cannot be computed.
cudnnStatus_t ReadPlan(cudnnBackendDescriptor_t from, Plan* plan) {
  int64_t workspace = 0;
  if (Get(from, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &workspace) !=
      CUDNN_STATUS_SUCCESS) {
    return Error(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "the plan is not finalised");
  }
  std::vector<char> json(kMostJsonBytes);
  Expect(Get(from, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, kMostJsonBytes,
             json.data()),
         "read a plan");
  absl::StatusOr<Program> program = Program::Read({json.data(), strnlen(json.data(), json.size())});
  if (!program.ok()) Refuse("a plan: " + program.status().ToString());
  const auto config = Descriptor::Create(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
  if (!config.ok()) Refuse(config.status().ToString());
  cudnnBackendDescriptor_t raw = config->get();
  Expect(Get(from, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &raw),
         "read a plan's engine config");
  const auto candidate = worker::search::ReadCandidate(*config);
  if (!candidate.ok()) Refuse("an engine config: " + candidate.status().ToString());
  const auto& id = std::get<EngineConfig>(candidate->id);
  const Site site = {{"engine", std::to_string(id.engine_index)},
                     {"config", ToText(id).substr(std::strlen("graph:"))}};
  plan->candidate = std::make_shared<simgpu::Candidate>(*std::move(program), site,
                                                        candidate->numerical_notes, workspace);
  return CUDNN_STATUS_SUCCESS;
}

// What a variant pack was set to: the ids cannot be read.
struct Pack {
  std::vector<int64_t> uids;
  std::vector<void*> pointers;
};

std::map<cudnnBackendDescriptor_t, Pack>& Packs() {
  static auto& packs = *new std::map<cudnnBackendDescriptor_t, Pack>();
  return packs;
}

std::map<cudnnBackendDescriptor_t, Plan>& Plans() {
  static auto& plans = *new std::map<cudnnBackendDescriptor_t, Plan>();
  return plans;
}

cudnnBackendDescriptor_t Properties() {
  static cudnnBackendDescriptor_t properties = [] {
    const std::string& json = Gpu::Get().profile().device_properties;
    cudnnBackendDescriptor_t made = nullptr;
    Expect(cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &made), "create");
    Expect(__real_cudnnBackendSetAttribute(made, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
                                           CUDNN_TYPE_CHAR, static_cast<int64_t>(json.size()),
                                           json.data()),
           "set the GPU's properties");
    Expect(cudnnBackendFinalize(made), "finalise the GPU's properties");
    return made;
  }();
  return properties;
}

cudnnStatus_t SetProperties(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name) {
  const cudnnBackendDescriptor_t properties = Properties();
  return __real_cudnnBackendSetAttribute(descriptor, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                                         &properties);
}

cudnnStatus_t ExecutePlan(const Handle& handle, cudnnBackendDescriptor_t descriptor,
                          cudnnBackendDescriptor_t pack_descriptor) {
  static Library library;
  Plan& plan = Plans()[descriptor];
  if (plan.candidate == nullptr) {
    const cudnnStatus_t status = ReadPlan(descriptor, &plan);
    if (status != CUDNN_STATUS_SUCCESS) return status;
  }
  void* workspace = nullptr;
  if (Get(pack_descriptor, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace) !=
      CUDNN_STATUS_SUCCESS) {
    return Error(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "the variant pack is not finalised");
  }
  // A finalised pack has one pointer for each id.
  const Pack& pack = Packs()[pack_descriptor];
  Call call;
  for (size_t i = 0; i < pack.uids.size(); ++i) call.data[pack.uids[i]] = pack.pointers[i];
  call.workspace = workspace;
  return Execute(&plan, call, handle.stream, &library);
}

}  // namespace
}  // namespace convtune::simgpu

using namespace convtune::simgpu;

SIMGPU_HIDDEN cudnnStatus_t __wrap_cudnnCreate(cudnnHandle_t* handle) {
  if (handle == nullptr) return Error(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "the handle is null");
  const std::optional<Action> fault = FaultOfCall("cudnnCreate");
  if (fault == Action::kFail) return Error(CUDNN_STATUS_NOT_INITIALIZED, "failed");
  if (fault == Action::kLost) Gpu::Get().Lose(cudaErrorIllegalAddress);
  // It allocates.
  if (Gpu::Get().WaitForIdle() != cudaSuccess) {
    return Error(CUDNN_STATUS_NOT_INITIALIZED, "the GPU cannot be used");
  }
  *handle = reinterpret_cast<cudnnHandle_t>(new Handle());
  return CUDNN_STATUS_SUCCESS;
}

SIMGPU_HIDDEN cudnnStatus_t __wrap_cudnnDestroy(cudnnHandle_t handle) {
  if (handle == nullptr) return Error(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "the handle is null");
  // It synchronises the device, which no capture survives, and has no error for that.
  (void)Gpu::Get().WaitForIdle();
  delete FromCudnn(handle);
  return CUDNN_STATUS_SUCCESS;
}

SIMGPU_HIDDEN cudnnStatus_t __wrap_cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  if (handle == nullptr || !Gpu::Get().IsStream(stream)) {
    return Error(CUDNN_STATUS_BAD_PARAM, "there is no such handle or stream");
  }
  FromCudnn(handle)->stream = stream;
  return CUDNN_STATUS_SUCCESS;
}

// As the real one: old text stays in front until somebody takes it.
SIMGPU_HIDDEN void __wrap_cudnnGetLastErrorString(char* message, size_t max_size) {
  __real_cudnnGetLastErrorString(message, max_size);
  const size_t used = strnlen(message, max_size);
  const std::string ours = TakeErrorText();
  if (used + 1 >= max_size) return;
  message[used + ours.copy(message + used, max_size - used - 1)] = '\0';
}

SIMGPU_HIDDEN cudnnStatus_t
__wrap_cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  Plans().erase(descriptor);
  Packs().erase(descriptor);
  return __real_cudnnBackendDestroyDescriptor(descriptor);
}

SIMGPU_HIDDEN cudnnStatus_t __wrap_cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor,
                                                            cudnnBackendAttributeName_t name,
                                                            cudnnBackendAttributeType_t type,
                                                            int64_t count, const void* values) {
  if (name == CUDNN_ATTR_OPERATIONGRAPH_HANDLE || name == CUDNN_ATTR_EXECUTION_PLAN_HANDLE) {
    if (type != CUDNN_TYPE_HANDLE || count != 1 || values == nullptr ||
        *static_cast<const cudnnHandle_t*>(values) == nullptr) {
      return Error(CUDNN_STATUS_BAD_PARAM, "there is no such handle");
    }
    if (name == CUDNN_ATTR_OPERATIONGRAPH_HANDLE) return CUDNN_STATUS_SUCCESS;
    return SetProperties(descriptor, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP);
  }
  const cudnnStatus_t status =
      __real_cudnnBackendSetAttribute(descriptor, name, type, count, values);
  if (status != CUDNN_STATUS_SUCCESS) return status;
  if (name == CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS) {
    const auto* const uids = static_cast<const int64_t*>(values);
    Packs()[descriptor].uids.assign(uids, uids + count);
  }
  if (name == CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS) {
    const auto* const pointers = static_cast<void* const*>(values);
    Packs()[descriptor].pointers.assign(pointers, pointers + count);
  }
  if (name == CUDNN_ATTR_ENGINE_OPERATION_GRAPH) {
    return SetProperties(descriptor, CUDNN_ATTR_ENGINE_DEVICEPROP);
  }
  if (name == CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH) {
    return SetProperties(descriptor, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP);
  }
  return status;
}

SIMGPU_HIDDEN cudnnStatus_t __wrap_cudnnBackendExecute(cudnnHandle_t handle,
                                                       cudnnBackendDescriptor_t plan,
                                                       cudnnBackendDescriptor_t pack) {
  if (handle == nullptr || plan == nullptr || pack == nullptr) {
    return Error(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "an argument is null");
  }
  return ExecutePlan(*FromCudnn(handle), plan, pack);
}

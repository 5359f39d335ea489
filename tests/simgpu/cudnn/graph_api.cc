// cuDNN's handles and graph API above the simulated GPU. Descriptors, lists, plans, workspaces and
// notes are the real library's, which is given the GPU's properties wherever it is given a handle.
#include <cudnn.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "proto/model/tuning/candidate.h"
#include "tests/simgpu/cudnn/execution.h"
#include "tests/simgpu/cudnn/handle.h"
#include "tests/simgpu/runtime/gpu.h"

SIMGPU_HIDDEN cudnnStatus_t __real_cudnnBackendSetAttribute(cudnnBackendDescriptor_t,
                                                            cudnnBackendAttributeName_t,
                                                            cudnnBackendAttributeType_t, int64_t,
                                                            const void*);
SIMGPU_HIDDEN void __real_cudnnGetLastErrorString(char*, size_t);

namespace convtune::simgpu {
namespace {

constexpr int64_t kMostNotes = 31;
constexpr int64_t kMostJsonBytes = 1 << 20;

struct DestroyDescriptor {
  void operator()(cudnnBackendDescriptor_t raw) const { cudnnBackendDestroyDescriptor(raw); }
};
using Descriptor =
    std::unique_ptr<std::remove_pointer_t<cudnnBackendDescriptor_t>, DestroyDescriptor>;

void Expect(cudnnStatus_t status, const char* what) {
  if (status != CUDNN_STATUS_SUCCESS)
    Refuse(std::string(what) + ": " + cudnnGetErrorString(status));
}

Descriptor MakeDescriptor(cudnnBackendDescriptorType_t type) {
  cudnnBackendDescriptor_t raw = nullptr;
  Expect(cudnnBackendCreateDescriptor(type, &raw), "create a descriptor");
  return Descriptor(raw);
}

// What real descriptors hold. A plan that was finalised has all of it, so an error ends the
// process.
template <typename T>
std::vector<T> GetUpTo(int64_t most, cudnnBackendDescriptor_t from,
                       cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type) {
  std::vector<T> values(static_cast<size_t>(most));
  int64_t count = 0;
  Expect(cudnnBackendGetAttribute(from, name, type, most, &count, values.data()),
         "get an attribute");
  values.resize(static_cast<size_t>(std::min(count, most)));
  return values;
}

template <typename T>
T GetOne(cudnnBackendDescriptor_t from, cudnnBackendAttributeName_t name,
         cudnnBackendAttributeType_t type) {
  T value = {};
  int64_t count = 0;
  Expect(cudnnBackendGetAttribute(from, name, type, 1, &count, &value), "get an attribute");
  return value;
}

Descriptor GetDescriptor(cudnnBackendDescriptor_t from, cudnnBackendAttributeName_t name,
                         cudnnBackendDescriptorType_t type) {
  Descriptor descriptor = MakeDescriptor(type);
  cudnnBackendDescriptor_t raw = descriptor.get();
  int64_t count = 0;
  Expect(cudnnBackendGetAttribute(from, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &raw),
         "get a descriptor");
  return descriptor;
}

EngineConfig ReadConfig(cudnnBackendDescriptor_t config, cudnnBackendDescriptor_t engine) {
  EngineConfig result;
  result.engine_index = GetOne<int64_t>(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64);
  // cuDNN gives 0 as the count of knob choices; there is at most one for each knob.
  int64_t count = 0;
  Expect(cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_KNOB_INFO,
                                  CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count, nullptr),
         "count knobs");
  std::vector<Descriptor> choices;
  std::vector<cudnnBackendDescriptor_t> raw;
  for (int64_t i = 0; i < count; ++i) {
    choices.push_back(MakeDescriptor(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR));
    raw.push_back(choices.back().get());
  }
  if (count > 0) {
    Expect(cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES,
                                    CUDNN_TYPE_BACKEND_DESCRIPTOR, count, &count, raw.data()),
           "get knobs");
  }
  for (int64_t i = 0; i < count; ++i) {
    const auto type = GetOne<cudnnBackendKnobType_t>(
        raw[static_cast<size_t>(i)], CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE);
    const auto value = GetOne<int64_t>(raw[static_cast<size_t>(i)],
                                       CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64);
    result.knobs.emplace_back(static_cast<int>(type), value);
  }
  std::sort(result.knobs.begin(), result.knobs.end());
  return result;
}

struct Plan {
  std::shared_ptr<const Candidate> candidate;
  bool loaded = false;
};

Plan ReadPlan(cudnnBackendDescriptor_t plan) {
  const std::vector<char> json = GetUpTo<char>(
      kMostJsonBytes, plan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR);
  absl::StatusOr<Program> program = Program::Read({json.data(), strnlen(json.data(), json.size())});
  if (!program.ok()) Refuse("a plan: " + program.status().ToString());
  const Descriptor config = GetDescriptor(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
                                          CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
  const Descriptor engine =
      GetDescriptor(config.get(), CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  const EngineConfig id = ReadConfig(config.get(), engine.get());
  uint32_t notes = 0;
  for (const auto note : GetUpTo<cudnnBackendNumericalNote_t>(
           kMostNotes, engine.get(), CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE)) {
    notes |= 2U << static_cast<int>(note);  // convtune's numbers are cuDNN's plus one
  }
  Site site;
  site.engine = std::to_string(id.engine_index);
  site.config = ToText(id).substr(std::strlen("graph:"));
  const auto workspace =
      GetOne<int64_t>(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64);
  return {std::make_shared<Candidate>(*std::move(program), site, notes, workspace), false};
}

// Variant packs can be set, and not read: this is what was set.
struct Pack {
  std::vector<int64_t> uids;
  std::vector<void*> pointers;
  void* workspace = nullptr;
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
    Descriptor made = MakeDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
    Expect(__real_cudnnBackendSetAttribute(made.get(), CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
                                           CUDNN_TYPE_CHAR, static_cast<int64_t>(json.size()),
                                           json.data()),
           "set the GPU's properties");
    Expect(cudnnBackendFinalize(made.get()), "finalise the GPU's properties");
    return made.release();
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
  auto found = Plans().find(descriptor);
  if (found == Plans().end()) found = Plans().emplace(descriptor, ReadPlan(descriptor)).first;
  Plan& plan = found->second;
  const Pack& pack = Packs()[pack_descriptor];
  if (pack.uids.size() != pack.pointers.size()) {
    return Error(CUDNN_STATUS_BAD_PARAM, "the variant pack has not one pointer for each id");
  }
  Call call;
  call.candidate = plan.candidate;
  for (size_t i = 0; i < pack.uids.size(); ++i) call.data[pack.uids[i]] = pack.pointers[i];
  call.workspace = pack.workspace;
  std::vector<Operand> needed = plan.candidate->program.Inputs();
  needed.push_back(plan.candidate->program.output);
  for (const Operand& operand : needed) {
    if (call.data.count(operand.uid) == 0) {
      return Error(CUDNN_STATUS_BAD_PARAM, "the variant pack lacks a tensor");
    }
  }
  return Execute(call, handle.stream, &library, &plan.loaded);
}

}  // namespace
}  // namespace convtune::simgpu

using namespace convtune::simgpu;

SIMGPU_HIDDEN cudnnStatus_t __wrap_cudnnCreate(cudnnHandle_t* handle) {
  // It allocates.
  if (Gpu::Get().WaitForIdle() != cudaSuccess) {
    return Error(CUDNN_STATUS_NOT_INITIALIZED, "the GPU cannot be used");
  }
  *handle = reinterpret_cast<cudnnHandle_t>(new Handle());
  return CUDNN_STATUS_SUCCESS;
}

SIMGPU_HIDDEN cudnnStatus_t __wrap_cudnnDestroy(cudnnHandle_t handle) {
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

SIMGPU_HIDDEN cudnnStatus_t __wrap_cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor,
                                                            cudnnBackendAttributeName_t name,
                                                            cudnnBackendAttributeType_t type,
                                                            int64_t count, const void* values) {
  if (name == CUDNN_ATTR_OPERATIONGRAPH_HANDLE) return CUDNN_STATUS_SUCCESS;
  if (name == CUDNN_ATTR_EXECUTION_PLAN_HANDLE) {
    // A new plan, perhaps at a former one's address.
    Plans().erase(descriptor);
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
  if (name == CUDNN_ATTR_VARIANT_PACK_WORKSPACE) {
    Packs()[descriptor].workspace = *static_cast<void* const*>(values);
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

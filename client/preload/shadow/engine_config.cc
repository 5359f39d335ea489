#include "client/preload/shadow/engine_config.h"

#include <stdlib.h>

#include "client/preload/process/counters.h"

namespace convtune::preload::shadow {
namespace {

bool Set(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
         cudnnBackendAttributeType_t type, int64_t count, const void* values) {
  return process::Real().SetAttribute(descriptor, name, type, count, values) ==
         CUDNN_STATUS_SUCCESS;
}

// Number of elements that were written, -1 on an error.
int64_t Get(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
            cudnnBackendAttributeType_t type, int64_t count, void* values) {
  int64_t got = 0;
  if (process::Real().GetAttribute(descriptor, name, type, count, &got, values) !=
      CUDNN_STATUS_SUCCESS) {
    return -1;
  }
  return count > 0 && got > count ? count : got;
}

cudnnBackendDescriptor_t MakeChoice(const snapshot::SnapshotKnob& knob) {
  process::Descriptor choice(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
  const auto type = static_cast<cudnnBackendKnobType_t>(knob.type);
  if (!choice ||
      !Set(choice.get(), CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &type) ||
      !Set(choice.get(), CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &knob.value) ||
      process::Real().Finalize(choice.get()) != CUDNN_STATUS_SUCCESS) {
    return nullptr;
  }
  return choice.Release();
}

// The attributes by which a descriptor takes a query's graph and device.
struct QueryAttributes {
  cudnnBackendAttributeName_t graph;
  cudnnBackendAttributeName_t sm_count_target;
  cudnnBackendAttributeName_t device;
};

// Finalises `made`, which is the caller's then, for the query's graph and device; null if cuDNN
// refuses it.
cudnnBackendDescriptor_t FinaliseFor(const HeuristicsShadow& query, const QueryAttributes& names,
                                     process::Descriptor* made) {
  const int32_t sms = query.sm_count_target;
  if (!Set(made->get(), names.graph, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &query.graph.graph) ||
      (sms > 0 && !Set(made->get(), names.sm_count_target, CUDNN_TYPE_INT32, 1, &sms)) ||
      (query.has_device && !Set(made->get(), names.device, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                                &query.device_descriptor)) ||
      process::Real().Finalize(made->get()) != CUDNN_STATUS_SUCCESS) {
    return nullptr;
  }
  return made->Release();
}

cudnnBackendDescriptor_t MakeEngine(const HeuristicsShadow& query, int64_t index) {
  process::Descriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  if (!engine || !Set(engine.get(), CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &index)) {
    return nullptr;
  }
  return FinaliseFor(query,
                     {CUDNN_ATTR_ENGINE_OPERATION_GRAPH, CUDNN_ATTR_ENGINE_SM_COUNT_TARGET,
                      CUDNN_ATTR_ENGINE_DEVICEPROP},
                     &engine);
}

template <typename T>
uint32_t ReadMask(cudnnBackendDescriptor_t engine, cudnnBackendAttributeName_t name,
                  cudnnBackendAttributeType_t type) {
  constexpr int kMost = 31;
  T notes[kMost];
  const int64_t count = Get(engine, name, type, kMost, notes);
  uint32_t mask = 0;
  for (int64_t i = 0; i < count; ++i) {
    const int bit = static_cast<int>(notes[i]) + 1;
    if (bit > 0 && bit <= kMost) {
      mask |= 1U << bit;
    }
  }
  return mask;
}

// Inserts in the order of types.
void Insert(const snapshot::SnapshotKnob& knob, ConfigFacts* facts) {
  int at = facts->knob_count++;
  for (; at > 0 && facts->knobs[at - 1].type > knob.type; --at) {
    facts->knobs[at] = facts->knobs[at - 1];
  }
  facts->knobs[at] = knob;
}

// cuDNN tells no count of knob choices; there is at most one for each knob of
// the engine.
bool ReadKnobs(cudnnBackendDescriptor_t config, cudnnBackendDescriptor_t engine,
               ConfigFacts* facts) {
  const int64_t most =
      Get(engine, CUDNN_ATTR_ENGINE_KNOB_INFO, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, nullptr);
  if (most < 0 || most > kMaxKnobs) {
    return false;
  }
  if (most == 0) {
    return true;
  }
  process::Descriptors choices(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, static_cast<int>(most));
  const int64_t got = choices.count() == most
                          ? Get(config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES,
                                CUDNN_TYPE_BACKEND_DESCRIPTOR, most, choices.data())
                          : -1;
  for (int i = 0; i < got; ++i) {
    cudnnBackendKnobType_t type = {};
    snapshot::SnapshotKnob knob = {};
    if (Get(choices[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &type) != 1 ||
        Get(choices[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &knob.value) != 1) {
      return false;
    }
    knob.type = static_cast<int32_t>(type);
    Insert(knob, facts);
  }
  return got >= 0;
}

}  // namespace

void Destroy(EngineSet* set) {
  for (int i = 0; i < set->choice_count; ++i) {
    process::Real().Destroy(set->choices[i]);
  }
  if (set->engine != nullptr) {
    process::Real().Destroy(set->engine);
  }
  set->engine = nullptr;
  set->choice_count = 0;
}

bool MakeEngineSet(const HeuristicsShadow& query, const snapshot::SnapshotCandidate& candidate,
                   const snapshot::SnapshotKnob* knobs, EngineSet* set) {
  set->choice_count = 0;
  set->engine = candidate.knob_count > kMaxKnobs ? nullptr : MakeEngine(query, candidate.number);
  if (set->engine == nullptr) {
    return false;
  }
  for (int i = 0; i < candidate.knob_count; ++i) {
    set->choices[i] = MakeChoice(knobs[i]);
    if (set->choices[i] == nullptr) {
      Destroy(set);
      return false;
    }
    ++set->choice_count;
  }
  return true;
}

bool FillConfig(const EngineSet& set, cudnnBackendDescriptor_t config) {
  return Set(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &set.engine) &&
         (set.choice_count == 0 ||
          Set(config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR,
              set.choice_count, set.choices)) &&
         process::Real().Finalize(config) == CUDNN_STATUS_SUCCESS;
}

bool Validate(const EngineSet& set) {
  const process::Descriptor config(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
  return config && FillConfig(set, config.get());
}

bool ReadConfig(cudnnBackendDescriptor_t config, bool with_knobs, ConfigFacts* facts) {
  facts->knob_count = 0;
  process::Descriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  if (!engine ||
      Get(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
          engine.address()) != 1 ||
      Get(engine.get(), CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1,
          &facts->engine_index) != 1) {
    return false;
  }
  facts->numerical_notes = ReadMask<cudnnBackendNumericalNote_t>(
      engine.get(), CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE);
  facts->behavior_notes = ReadMask<cudnnBackendBehaviorNote_t>(
      engine.get(), CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE);
  return !with_knobs || ReadKnobs(config, engine.get(), facts);
}

int ListConfigs(cudnnBackendDescriptor_t heuristics, process::Descriptors* configs) {
  const int64_t got = configs->count() == 0
                          ? 0
                          : Get(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                CUDNN_TYPE_BACKEND_DESCRIPTOR, configs->count(), configs->data());
  return got < 0 ? 0 : static_cast<int>(got);
}

cudnnBackendDescriptor_t MakeQuery(const HeuristicsShadow& query, cudnnBackendHeurMode_t mode) {
  process::Descriptor other(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  if (!other || !Set(other.get(), CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode)) {
    return nullptr;
  }
  return FinaliseFor(query,
                     {CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_ATTR_ENGINEHEUR_SM_COUNT_TARGET,
                      CUDNN_ATTR_ENGINEHEUR_DEVICEPROP},
                     &other);
}

int64_t WorkspaceOf(const HeuristicsShadow& query, cudnnBackendDescriptor_t config) {
  const process::Descriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  if (!plan || !Set(plan.get(), CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
                    CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &config)) {
    return -1;
  }
  void* handle = query.graph.handle;
  const bool placed =
      query.has_device
          ? Set(plan.get(), CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                &query.device_descriptor)
          : Set(plan.get(), CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
  int64_t bytes = -1;
  process::Count(&process::counters.plans_own);
  if (!placed || process::Real().Finalize(plan.get()) != CUDNN_STATUS_SUCCESS ||
      Get(plan.get(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &bytes) != 1) {
    return -1;
  }
  return bytes;
}

int64_t ToldWorkspaceOf(const HeuristicsShadow& query, cudnnBackendDescriptor_t config) {
  int64_t bytes = -1;
  if (Get(config, CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &bytes) == 1 &&
      bytes >= 0) {
    return bytes;
  }
  return WorkspaceOf(query, config);
}

void Release(Served* served) {
  if (served == nullptr) {
    return;
  }
  for (int i = 0; i < served->count; ++i) {
    Destroy(&served->sets[i]);
  }
  if (served->other != nullptr) {
    process::Real().Destroy(served->other);
  }
  free(served);
}

}  // namespace convtune::preload::shadow

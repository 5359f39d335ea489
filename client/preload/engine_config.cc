#include "client/preload/engine_config.h"

#include <stdlib.h>

#include <algorithm>
#include <initializer_list>

#include "client/preload/counters.h"

namespace convtune::preload {
namespace {

// An attribute that is set. Without values it is left as it is.
struct Setting {
  cudnnBackendAttributeName_t name;
  cudnnBackendAttributeType_t type;
  int64_t count;
  const void* values;
};

// False if cuDNN refuses one of the settings or all together.
bool Finalise(cudnnBackendDescriptor_t descriptor, std::initializer_list<Setting> settings) {
  for (const Setting& s : settings) {
    if (s.count > 0 && real_cudnn.SetAttribute(descriptor, s.name, s.type, s.count, s.values) !=
                           CUDNN_STATUS_SUCCESS) {
      return false;
    }
  }
  return real_cudnn.Finalize(descriptor) == CUDNN_STATUS_SUCCESS;
}

// A finalised descriptor, which is the caller's; null if cuDNN refuses it.
cudnnBackendDescriptor_t Make(cudnnBackendDescriptorType_t type,
                              std::initializer_list<Setting> settings) {
  Descriptors made(type);
  return made.count() > 0 && Finalise(made[0], settings) ? made.Release() : nullptr;
}

cudnnBackendDescriptor_t MakeChoice(const snapshot::SnapshotKnob& knob) {
  const auto type = static_cast<cudnnBackendKnobType_t>(knob.type);
  return Make(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR,
              {{CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &type},
               {CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &knob.value}});
}

// For the query's graph and device.
cudnnBackendDescriptor_t MakeEngine(const HeuristicsShadow& query, int64_t index) {
  return Make(
      CUDNN_BACKEND_ENGINE_DESCRIPTOR,
      {{CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &index},
       {CUDNN_ATTR_ENGINE_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &query.graph.graph},
       {CUDNN_ATTR_ENGINE_SM_COUNT_TARGET, CUDNN_TYPE_INT32, query.sm_count_target > 0,
        &query.sm_count_target},
       {CUDNN_ATTR_ENGINE_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, query.has_device,
        &query.device_descriptor}});
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

// cuDNN tells no count of knob choices; there is at most one for each knob of
// the engine.
bool ReadKnobs(cudnnBackendDescriptor_t config, cudnnBackendDescriptor_t engine,
               ConfigFacts* facts) {
  const int64_t most =
      Get(engine, CUDNN_ATTR_ENGINE_KNOB_INFO, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, nullptr);
  if (most < 0 || most > snapshot::kMaxDatagramKnobs) {
    return false;
  }
  Descriptors choices(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, static_cast<int>(most));
  const int64_t got = most == 0 ? 0
                      : choices.count() == most
                          ? Get(config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES,
                                CUDNN_TYPE_BACKEND_DESCRIPTOR, most, choices.data())
                          : -1;
  for (int i = 0; i < got; ++i) {
    cudnnBackendKnobType_t type = {};
    auto& knob = facts->knobs[facts->knob_count++];
    if (Get(choices[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &type) != 1 ||
        Get(choices[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &knob.value) != 1) {
      return false;
    }
    knob.type = static_cast<int32_t>(type);
  }
  std::sort(facts->knobs, facts->knobs + facts->knob_count,
            [](const auto& a, const auto& b) { return a.type < b.type; });
  return got >= 0;
}

}  // namespace

int64_t Get(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
            cudnnBackendAttributeType_t type, int64_t count, void* values) {
  int64_t got = 0;
  if (real_cudnn.GetAttribute(descriptor, name, type, count, &got, values) !=
      CUDNN_STATUS_SUCCESS) {
    return -1;
  }
  return count > 0 && got > count ? count : got;
}

bool MakeEngineSet(const HeuristicsShadow& query, const snapshot::SnapshotCandidate& candidate,
                   const snapshot::SnapshotKnob* knobs, Descriptors* set) {
  bool made =
      candidate.knob_count < Descriptors::kMost && set->Add(MakeEngine(query, candidate.number));
  for (int i = 0; made && i < candidate.knob_count; ++i) {
    made = set->Add(MakeChoice(knobs[i]));
  }
  const Descriptors config(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
  if (made && config.count() > 0 && FillConfig(*set, config[0])) {
    return true;
  }
  set->Clear();
  return false;
}

bool FillConfig(const Descriptors& set, cudnnBackendDescriptor_t config) {
  return Finalise(
      config, {{CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, set.data()},
               {CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR, set.count() - 1,
                set.data() + 1}});
}

bool ReadConfig(cudnnBackendDescriptor_t config, bool with_knobs, ConfigFacts* facts) {
  facts->knob_count = 0;
  Descriptors engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  if (engine.count() == 0 ||
      Get(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, engine.data()) !=
          1 ||
      Get(engine[0], CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &facts->engine_index) !=
          1) {
    return false;
  }
  facts->numerical_notes = ReadMask<cudnnBackendNumericalNote_t>(
      engine[0], CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE);
  facts->behavior_notes = ReadMask<cudnnBackendBehaviorNote_t>(
      engine[0], CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE);
  return !with_knobs || ReadKnobs(config, engine[0], facts);
}

int ListConfigs(cudnnBackendDescriptor_t heuristics, Descriptors* configs) {
  const int64_t got = configs->count() == 0
                          ? 0
                          : Get(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                CUDNN_TYPE_BACKEND_DESCRIPTOR, configs->count(), configs->data());
  return got < 0 ? 0 : static_cast<int>(got);
}

cudnnBackendDescriptor_t MakeQuery(const HeuristicsShadow& query, cudnnBackendHeurMode_t mode) {
  return Make(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR,
              {{CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode},
               {CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                &query.graph.graph},
               {CUDNN_ATTR_ENGINEHEUR_SM_COUNT_TARGET, CUDNN_TYPE_INT32, query.sm_count_target > 0,
                &query.sm_count_target},
               {CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, query.has_device,
                &query.device_descriptor}});
}

int64_t WorkspaceOf(const HeuristicsShadow& query, cudnnBackendDescriptor_t config) {
  Count(Counter::kPlansOwn);
  const Descriptors plan(
      Make(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR,
           {{CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &config},
            {CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, query.has_device,
             &query.device_descriptor},
            {CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, !query.has_device,
             &query.graph.handle}}));
  int64_t bytes = -1;
  return plan.count() > 0 && Get(plan[0], CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                 CUDNN_TYPE_INT64, 1, &bytes) == 1
             ? bytes
             : -1;
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
    served->sets[i].Clear();
  }
  if (served->other != nullptr) {
    real_cudnn.Destroy(served->other);
  }
  free(served);
}

}  // namespace convtune::preload

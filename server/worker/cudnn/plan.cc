#include "server/worker/cudnn/plan.h"

#include <utility>
#include <vector>

#include "proto/base/status_macros.h"

namespace convtune::worker::cudnn {

absl::StatusOr<Descriptor> MakeEngine(const OperationGraph& graph, int64_t index) {
  ASSIGN_OR_RETURN(Descriptor engine, Descriptor::Create(CUDNN_BACKEND_ENGINE_DESCRIPTOR));
  engine.Set(CUDNN_ATTR_ENGINE_OPERATION_GRAPH, graph.descriptor());
  engine.Set(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, index);
  if (graph.sm_count_target() > 0) {
    engine.Set(CUDNN_ATTR_ENGINE_SM_COUNT_TARGET, graph.sm_count_target());
  }
  if (graph.target().device_properties != nullptr) {
    engine.Set(CUDNN_ATTR_ENGINE_DEVICEPROP, *graph.target().device_properties);
  }
  RETURN_IF_ERROR(engine.Finalize());
  return engine;
}

absl::StatusOr<ExecutionPlan> ExecutionPlan::Create(const OperationGraph& graph,
                                                    const EngineConfig& config) {
  ASSIGN_OR_RETURN(const Descriptor engine, MakeEngine(graph, config.engine_index));
  std::vector<Descriptor> choices;
  for (const auto& [type, value] : config.knobs) {
    ASSIGN_OR_RETURN(Descriptor choice, Descriptor::Create(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR));
    choice.Set(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, static_cast<cudnnBackendKnobType_t>(type));
    choice.Set(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, value);
    RETURN_IF_ERROR(choice.Finalize());
    choices.push_back(std::move(choice));
  }
  ASSIGN_OR_RETURN(Descriptor engine_config,
                   Descriptor::Create(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR));
  engine_config.Set(CUDNN_ATTR_ENGINECFG_ENGINE, engine);
  if (!choices.empty()) {
    engine_config.Set(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, choices);
  }
  RETURN_IF_ERROR(engine_config.Finalize());

  ExecutionPlan plan;
  ASSIGN_OR_RETURN(plan.plan_, Descriptor::Create(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR));
  plan.plan_.Set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, engine_config);
  if (graph.target().handle != nullptr) {
    plan.plan_.Set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, graph.target().handle);
  } else {
    plan.plan_.Set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, *graph.target().device_properties);
  }
  RETURN_IF_ERROR(plan.plan_.Finalize());
  ASSIGN_OR_RETURN(plan.workspace_bytes_,
                   plan.plan_.Get<int64_t>(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE));
  return plan;
}

}  // namespace convtune::worker::cudnn

#include "client/preload/observe.h"

#include "client/preload/counters.h"
#include "client/preload/engine_config.h"
#include "client/preload/problems.h"
#include "client/preload/real_cudnn.h"
#include "client/preload/report.h"

namespace convtune::preload {
namespace {

// A search runs each plan a few times (PyTorch's twice); what is run so often
// is what the program settled on.
constexpr uint64_t kSettled = 16;

void Describe(cudnnBackendDescriptor_t plan, const PlanShadow& shadow) {
  Problem* problem = shadow.problem;
  cudnnBackendDescriptor_t config = nullptr;
  if (Real().Create(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &config) != CUDNN_STATUS_SUCCESS) {
    return;
  }
  format::ObservedPlanDatagram datagram = {};
  ConfigFacts facts;
  int64_t got = 0;
  if (Real().GetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
                          CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &got,
                          &config) == CUDNN_STATUS_SUCCESS &&
      got == 1 && ReadConfig(config, true, &facts) &&
      facts.knob_count <= static_cast<int>(format::kMaxDatagramKnobs) &&
      Real().GetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &got,
                          &datagram.workspace_bytes) == CUDNN_STATUS_SUCCESS) {
    datagram.engine_index = facts.engine_index;
    datagram.numerical_notes = facts.numerical_notes;
    datagram.behavior_notes = facts.behavior_notes;
    datagram.plans_built = problem->plans_built.load(std::memory_order_relaxed);
    datagram.executions = shadow.executions.load(std::memory_order_relaxed);
    datagram.knob_count = static_cast<uint32_t>(facts.knob_count);
    for (int i = 0; i < facts.knob_count; ++i) {
      datagram.knobs[i] = {facts.knobs[i].type, 0, facts.knobs[i].value};
    }
    if (TellPlan(*problem, &datagram)) {
      Count(&counters.learned);
    }
  }
  Real().Destroy(config);
}

}  // namespace

void OnPlanFinalized(PlanShadow* plan) {
  if (plan->problem == nullptr) {
    return;
  }
  Count(&counters.plans);
  if (plan->served) {
    Count(&counters.plans_served);
  }
  plan->problem->plans_built.fetch_add(1, std::memory_order_relaxed);
}

void OnExecute(cudnnBackendDescriptor_t descriptor, PlanShadow* plan) {
  Problem* problem = plan->problem;
  if (problem == nullptr) {
    return;
  }
  Count(&counters.executions);
  if (plan->served) {
    Count(&counters.executions_served);
  }
  const uint64_t executions = plan->executions.fetch_add(1, std::memory_order_relaxed) + 1;
  if (executions == 1) {
    problem->plans_run.fetch_add(1, std::memory_order_relaxed);
  }
  if (executions == kSettled && !plan->served &&
      problem->plans_run.load(std::memory_order_relaxed) >= 2 &&
      !problem->plan_told.exchange(true)) {
    Describe(descriptor, *plan);
  }
}

}  // namespace convtune::preload

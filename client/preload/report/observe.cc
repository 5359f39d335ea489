#include "client/preload/report/observe.h"

#include <stdlib.h>

#include "client/preload/process/counters.h"
#include "client/preload/process/descriptor.h"
#include "client/preload/process/device.h"
#include "client/preload/report/problems.h"
#include "client/preload/shadow/engine_config.h"

namespace convtune::preload::report {
namespace {

// A search runs each plan a few times (PyTorch's twice); what is run so often,
// or goes into a CUDA graph after it, is what the program settled on.
constexpr uint64_t kSearched = 3;
constexpr uint64_t kSettled = 16;

bool GetInt(cudnnBackendDescriptor_t plan, cudnnBackendAttributeName_t name, int64_t* value) {
  int64_t got = 0;
  return process::Real().GetAttribute(plan, name, CUDNN_TYPE_INT64, 1, &got, value) ==
         CUDNN_STATUS_SUCCESS;
}

bool Read(cudnnBackendDescriptor_t plan, snapshot::ObservedPlanDatagram* datagram) {
  process::Descriptor config(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
  shadow::ConfigFacts facts;
  int64_t got = 0;
  const bool read =
      config &&
      process::Real().GetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
                                   CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &got,
                                   config.address()) == CUDNN_STATUS_SUCCESS &&
      got == 1 && shadow::ReadConfig(config.get(), true, &facts) &&
      facts.knob_count <= static_cast<int>(snapshot::kMaxDatagramKnobs) &&
      GetInt(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, &datagram->workspace_bytes);
  if (read) {
    datagram->engine_index = facts.engine_index;
    datagram->numerical_notes = facts.numerical_notes;
    datagram->behavior_notes = facts.behavior_notes;
    datagram->knob_count = static_cast<uint32_t>(facts.knob_count);
    for (int i = 0; i < facts.knob_count; ++i) {
      datagram->knobs[i] = {facts.knobs[i].type, 0, facts.knobs[i].value};
    }
  }
  return read;
}

// Called by one execution of a plan, at most twice.
void Describe(cudnnBackendDescriptor_t descriptor, shadow::PlanShadow* plan) {
  if (plan->facts.load(std::memory_order_acquire) != nullptr) {
    return;
  }
  auto* facts =
      static_cast<snapshot::ObservedPlanDatagram*>(calloc(1, sizeof(*plan->facts.load())));
  if (facts == nullptr || !Read(descriptor, facts)) {
    free(facts);
    return;
  }
  snapshot::ObservedPlanDatagram* none = nullptr;
  if (!plan->facts.compare_exchange_strong(none, facts, std::memory_order_acq_rel)) {
    free(facts);
  }
}

// Once for each problem. Calls nothing of cuDNN: the stream may be capturing.
void Tell(const shadow::PlanShadow& plan) {
  const snapshot::ObservedPlanDatagram* facts = plan.facts.load(std::memory_order_acquire);
  if (facts == nullptr || plan.problem->plan_told.exchange(true)) {
    return;
  }
  snapshot::ObservedPlanDatagram datagram = *facts;
  datagram.plans_built = plan.problem->plans_built.load(std::memory_order_relaxed);
  datagram.executions = plan.executions.load(std::memory_order_relaxed);
  if (TellPlan(*plan.problem, &datagram)) {
    process::Count(&process::counters.learned);
  }
}

bool IsCaptured(cudnnHandle_t handle) {
  cudaStream_t stream = nullptr;
  return process::Real().GetStream != nullptr &&
         process::Real().GetStream(handle, &stream) == CUDNN_STATUS_SUCCESS &&
         process::IsCapturing(stream);
}

}  // namespace

void OnPlanFinalized(shadow::PlanShadow* plan) {
  if (plan->problem == nullptr) {
    return;
  }
  process::Count(&process::counters.plans);
  if (plan->served) {
    process::Count(&process::counters.plans_served);
  }
  plan->problem->plans_built.fetch_add(1, std::memory_order_relaxed);
}

void OnExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t descriptor,
               shadow::PlanShadow* plan) {
  Problem* problem = plan->problem;
  if (problem == nullptr) {
    return;
  }
  if (IsCaptured(handle)) {
    process::Count(&process::counters.captured);
    if (plan->served) {
      process::Count(&process::counters.captured_served);
    } else {
      Tell(*plan);
    }
    return;
  }
  process::Count(&process::counters.executions);
  if (plan->served) {
    process::Count(&process::counters.executions_served);
  }
  const uint64_t executions = plan->executions.fetch_add(1, std::memory_order_relaxed) + 1;
  if (executions == 1) {
    problem->plans_run.fetch_add(1, std::memory_order_relaxed);
  }
  if ((executions != kSearched && executions != kSettled) || plan->served ||
      problem->plans_run.load(std::memory_order_relaxed) < 2 || problem->plan_told.load()) {
    return;
  }
  Describe(descriptor, plan);
  if (executions == kSettled) {
    Tell(*plan);
  }
}

}  // namespace convtune::preload::report

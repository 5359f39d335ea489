// Observes which plans a program builds and keeps executing.
#pragma once

#include <cudnn.h>

#include "client/preload/shadow/shadow.h"

namespace convtune::preload::report {

// After cuDNN finalised a plan.
void OnPlanFinalized(shadow::PlanShadow* plan);
// After cuDNN executed a plan, or recorded it into the CUDA graph that its handle's stream is
// captured into: what is captured did not run, and is counted by itself. Where a program has run at
// least two plans of a problem and keeps to one that was not served, or captures it, the daemon is
// told of it, once.
void OnExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t descriptor, shadow::PlanShadow* plan);

}  // namespace convtune::preload::report

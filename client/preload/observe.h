// Which plans a program builds and keeps executing.
#pragma once

#include <cudnn.h>

#include "client/preload/shadow.h"

namespace convtune::preload {

// After cuDNN finalised a plan.
void OnPlanFinalized(PlanShadow* plan);
// After cuDNN executed a plan. Where a program has run at least two plans of a problem and keeps to
// one that was not served, the daemon is told of it, once.
void OnExecute(cudnnBackendDescriptor_t descriptor, PlanShadow* plan);

}  // namespace convtune::preload

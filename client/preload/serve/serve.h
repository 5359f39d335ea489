// Chooses which of a problem's stored candidates a query gets.
#pragma once

#include <cudnn.h>

#include "client/preload/shadow/engine_config.h"
#include "client/preload/shadow/shadow.h"

namespace convtune::preload::serve {

// Called after cuDNN has finalised a heuristics descriptor: looks its problem
// up and prepares what it will give. On a miss, a refusal or any doubt nothing
// is prepared, and cuDNN's own answer stands, within the limit on the workspace.
void OnHeuristics(cudnnBackendDescriptor_t heuristics, shadow::HeuristicsShadow* query);

// Answers GetAttribute of the results of such a query. False if that failed and
// cuDNN is to be asked as if nothing had been prepared.
bool GiveResults(cudnnBackendDescriptor_t heuristics, shadow::HeuristicsShadow* query,
                 int64_t requested, int64_t* count, cudnnBackendDescriptor_t* configs,
                 cudnnStatus_t* status);

// Notes which query the configs that cuDNN gave come from.
void NoteResults(const shadow::HeuristicsShadow& query, int64_t requested, const int64_t* count,
                 const cudnnBackendDescriptor_t* configs);

}  // namespace convtune::preload::serve

// Bounds on what a program is offered, cuDNN's own list included: the limit on the workspace
// (CONVTUNE_PRELOAD_MAX_WORKSPACE), and the errata, unless CONVTUNE_PRELOAD_ERRATA is 0. They hold
// while something that can be built keeps to them.
#pragma once

#include <cudnn.h>
#include <stdint.h>

#include "client/preload/serve/legacy.h"
#include "client/preload/shadow/shadow.h"

namespace convtune::preload::serve {

// False also for what cannot be built, whose `workspace` is negative.
constexpr bool FitsInto(int64_t limit, int64_t workspace) {
  return workspace >= 0 && workspace <= limit;
}

struct Bounds {
  int64_t max_workspace;  // bytes; negative: any
  bool errata;            // leave out the engines of kErrata
};

// Whether the config is of an engine that is known to be wrong for the query.
bool IsErratum(const shadow::HeuristicsShadow& query, cudnnBackendDescriptor_t config);

// After OnHeuristics: leaves out of what a finalised query gives the configs beyond the bounds.
// Where its own list has none left, those of another mode's list take its place; where no list has
// any, all stays as it is.
void LimitList(Bounds bounds, cudnnBackendDescriptor_t heuristics, shadow::HeuristicsShadow* query);

// Takes the results that need more memory than the limit out of what a legacy function gave, and
// cuts it to `most`. Where no good one is left, it is cut only. Returns how many there are.
int LimitLegacy(int64_t limit, int count, int most, LegacyResult* results);

}  // namespace convtune::preload::serve

// The limit on the workspace (CONVTUNE_PRELOAD_MAX_WORKSPACE), to which all that a program is
// offered keeps, cuDNN's own list too, while something that can be built does.
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

// After OnHeuristics: leaves out of what a finalised query gives the configs that need more than
// the limit. Where its own list has none left, those of another mode's list take its place; where
// no list has any, all stays as it is.
void LimitWorkspace(int64_t limit, cudnnBackendDescriptor_t heuristics,
                    shadow::HeuristicsShadow* query);

// Takes the results that need more memory than the limit out of what a legacy function gave, and
// cuts it to `most`. Where no good one is left, it is cut only. Returns how many there are.
int LimitLegacy(int64_t limit, int count, int most, LegacyResult* results);

}  // namespace convtune::preload::serve

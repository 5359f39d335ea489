// Chooses what a query gets: which of a problem's stored candidates, and what of cuDNN's own list.
#pragma once

#include <cudnn.h>
#include <stdint.h>

#include "client/preload/shadow.h"
#include "client/preload/state.h"
#include "db/snapshot/snapshot.h"

namespace convtune::preload {

// Called after cuDNN has finalised a heuristics descriptor: looks its problem
// up and prepares what it will give. On a miss, a refusal or any doubt nothing
// is prepared, and cuDNN's own answer stands, within the limit on the workspace.
void OnHeuristics(Record* query);

// Answers GetAttribute of the results of a heuristics descriptor.
cudnnStatus_t GiveResults(const Record& query, int64_t requested, int64_t* count,
                          cudnnBackendDescriptor_t* configs);

// Describes the stock choice of a finalised query. Takes it from the snapshot. If the
// snapshot has none, finalises the first config of cuDNN's list that can be built,
// once per problem and mode. Returns false if it cannot be told.
bool StockOf(const HeuristicsShadow& query, snapshot::StockChoice* stock);

// Gives the place in cuDNN's own list of the first config (in FALLBACK's list: of the last one)
// that has no numerical note but strict NaN propagation, is within the limit on the workspace and
// is of no engine that is known to be wrong; -1 if the list has none. Looked for once per problem
// and mode.
int PlainConfig(const HeuristicsShadow& query);

// True if a plan that needs `workspace` bytes keeps to `limit`. A negative limit allows any
// workspace. A negative workspace is that of a plan that cannot be built, and keeps to no limit.
constexpr bool FitsInto(int64_t limit, int64_t workspace) {
  return workspace >= 0 && (limit < 0 || workspace <= limit);
}

// Leaves out of what a finalised query gives the configs that need more than the limit on the
// workspace, and the engines that are known to be wrong. Where the query's own list has none left,
// the list of another mode takes its place; where no list has any, all stays as it is.
void LimitList(const Settings& settings, HeuristicsShadow* query);

}  // namespace convtune::preload

#pragma once

#include "client/preload/shadow/shadow.h"
#include "db/snapshot/snapshot.h"

namespace convtune::preload::serve {

// Describes the stock choice of a finalised query. Takes it from the snapshot. If the
// snapshot has none, finalises the first config of cuDNN's list that can be built,
// once per problem and mode. Returns false if it cannot be told.
bool StockOf(cudnnBackendDescriptor_t heuristics, const shadow::HeuristicsShadow& query,
             snapshot::StockChoice* stock);

// Place in cuDNN's own list of the first config without any numerical note but
// strict NaN propagation, in FALLBACK's of the last such one, and within the limit
// on the workspace; -1 if no config is so. Looked for once per problem and mode.
int PlainConfig(cudnnBackendDescriptor_t heuristics, const shadow::HeuristicsShadow& query);

}  // namespace convtune::preload::serve

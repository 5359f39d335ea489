#pragma once

#include "client/preload/shadow.h"
#include "db/format/snapshot.h"

namespace convtune::preload {

// What the stock choice of a finalised query is like: as the snapshot says, or
// found out here, once per problem and mode, by finalising the first of cuDNN's
// list that can be. False if it cannot be told.
bool StockOf(cudnnBackendDescriptor_t heuristics, const HeuristicsShadow& query,
             format::StockChoice* stock);

// Place in cuDNN's own list of the first config without any numerical note but
// strict NaN propagation; of the last such one if `last`. -1 if there is none.
int PlainConfig(cudnnBackendDescriptor_t heuristics, bool last);

}  // namespace convtune::preload

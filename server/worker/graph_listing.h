// Collects candidates from the heuristics and the enumeration of engines.
#pragma once

#include "server/worker/graph_builder.h"
#include "server/worker/listing_sink.h"

namespace convtune {

// Lists the graph API's candidates as the options say. A mode that cuDNN refuses is
// noted in the sink.
void ListGraphCandidates(const OperationGraph& graph, const ListingOptions& options,
                         ListingSink* sink);

}  // namespace convtune

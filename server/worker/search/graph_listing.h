// Collects candidates from the heuristics and from the enumeration of engines.
#pragma once

#include "server/worker/cudnn/graph_builder.h"
#include "server/worker/search/listing_sink.h"

namespace convtune::worker::search {

// Lists the graph API's candidates as the options say. A mode that cuDNN refuses is
// noted in the sink.
void ListGraphCandidates(const cudnn::OperationGraph& graph, const ListingOptions& options,
                         ListingSink* sink);

}  // namespace convtune::worker::search

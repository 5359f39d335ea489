// Collects candidates from the heuristics and the enumeration of engines.
#pragma once

#include "server/worker/lane_graphs.h"
#include "server/worker/listing_sink.h"

namespace convtune {

// Lists the graph API's candidates as the options say, asking several heuristics
// at a time where there are lanes, but always in the same order. What cuDNN refuses is
// noted in the sink.
void ListGraphCandidates(LaneGraphs* graphs, const ListingOptions& options, ListingSink* sink);

}  // namespace convtune

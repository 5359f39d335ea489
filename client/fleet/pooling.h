// PoolEvidence makes one pooled tuning of the evidence of many nodes. Pure.
#pragma once

#include <vector>

#include "db/fleet/evidence.h"

namespace convtune::fleet {

// Puts the evidence of one problem together, at least one node's. Only tunings
// of the best standing (TuningStanding) count, in the cache state that most of
// them have.
//
// Nodes of one model differ in speed, by clocks and cooling: so each node's times are
// first divided by its speed, which is its time of the stock choice over the nodes'
// median of that. A candidate's pooled time is the median over the nodes that timed
// it, which up to half of them cannot move at will. Its interval is the 95% one of
// MedianInterval where at least nine nodes timed it, else the medians of the nodes' own
// intervals. Candidates are ranked as on a node (RankCandidates). With one node
// everything is that node's.
db::fleet::PooledTuning PoolEvidence(const std::vector<db::fleet::NodeEvidence>& evidence);

}  // namespace convtune::fleet

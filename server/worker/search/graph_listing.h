// ListGraphCandidates collects the graph API's candidates from cuDNN's heuristics and from the
// enumeration of engines. Plain functions.
#pragma once

#include <cudnn.h>

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/base/clock.h"
#include "proto/model/tuning/candidate.h"
#include "server/worker/cudnn/graph_builder.h"
#include "server/worker/search/listing_sink.h"

namespace convtune::worker::search {

// The notes of an engine, as masks of NoteBit.
struct EngineNotes {
  uint32_t numerical = 0;
  uint32_t behavior = 0;
};
absl::StatusOr<EngineNotes> ReadNotes(const cudnn::Descriptor& engine);

// The id and notes of an engine config.
absl::StatusOr<Candidate> ReadCandidate(const cudnn::Descriptor& config);

// The list of one heuristic mode, in its order.
struct HeuristicList {
  std::vector<Candidate> candidates;
  std::vector<absl::Status> refusals;  // of candidates that could not be read
  bool out_of_time = false;            // there is more
};

// Reads the list until the deadline, but at least one candidate. Errors are
// cuDNN's, when the mode refuses the graph.
absl::StatusOr<HeuristicList> AskHeuristics(const cudnn::OperationGraph& graph,
                                            cudnnBackendHeurMode_t mode, SteadyTime deadline);

// Lists the graph API's candidates as the options say. A mode that cuDNN refuses is
// noted in the sink.
void ListGraphCandidates(const cudnn::OperationGraph& graph, const ListingOptions& options,
                         ListingSink* sink);

}  // namespace convtune::worker::search

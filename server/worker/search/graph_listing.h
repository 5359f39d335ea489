// ListGraphCandidates collects the graph API's candidates from cuDNN's heuristics and from the
// enumeration of engines. Plain functions.
#pragma once

#include <cudnn.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/base/clock.h"
#include "proto/model/tuning/candidate.h"
#include "server/worker/cudnn/graph_builder.h"
#include "server/worker/search/listing_sink.h"

namespace convtune::worker::search {

// The id and notes of an engine config.
absl::StatusOr<Candidate> ReadCandidate(const cudnn::Descriptor& config);

// Values that a knob takes: minimum, minimum + stride, ... up to maximum.
struct KnobRange {
  int type = 0;
  int64_t minimum = 0;
  int64_t maximum = 0;
  int64_t stride = 1;

  int64_t Count() const;
};

// The combinations of an engine's knobs in an order that spreads over the
// whole space from the start, each once. Value type.
class KnobSpace {
 public:
  explicit KnobSpace(std::vector<KnobRange> ranges);

  // Number of combinations, at least 1; capped at 2^40.
  int64_t size() const { return size_; }
  // REQUIRES: 0 <= i < size().
  std::vector<std::pair<int, int64_t>> At(int64_t i) const;

 private:
  std::vector<KnobRange> ranges_;
  int64_t size_ = 1;
  int64_t step_ = 1;  // coprime to size_
};

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

// Lists the graph API's candidates to this depth: what the modes list, and, EXHAUSTIVE, each
// engine's combinations of knobs in turn, 1024 of an engine at most: one with more marks the
// listing truncated. A mode that cuDNN refuses is noted in the sink.
void ListGraphCandidates(const cudnn::OperationGraph& graph, worker::v1::Listing depth,
                         ListingSink* sink);

}  // namespace convtune::worker::search

// Runs cudnnFind*, and gives the order of cudnnGet*_v7.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "proto/model/problem/conv_problem.h"
#include "server/worker/cudnn/legacy_convolution.h"
#include "server/worker/search/listing_sink.h"

namespace convtune::worker::search {

// True if cudnnFind* may be called: a call runs every algorithm, and cannot be
// interrupted. The limit is 10^11 multiply-adds. An algorithm at 10^12 a second,
// a thirtieth of an H200's FMA rate, takes 0.1 s for that.
bool FindIsAffordable(const ConvProblem& problem);

// Passes what cudnnGet*_v7 lists to the sink, in its order, as ListLegacyAlgorithms
// does with what no search had. Runs nothing.
void ListExpectedAlgorithms(const ConvProblem& problem, cudnn::LegacyApi* cudnn, ListingSink* sink);

// Runs cudnnFind*, if it is affordable, with the math types that make sense for
// the inputs and passes every entry to the sink, the refused ones with their
// reason, and behind them what cudnnGet*_v7 lists and no search had; that also
// where cuDNN refused the search, it was left out, or the deadline cut it off.
// Each has its place in that
// list as its heuristic rank; where cuDNN refuses the list, none has, and the
// sink is told. Needs a GPU. Errors are cuDNN's, when it refuses the search as
// a whole.
absl::Status ListLegacyAlgorithms(const ConvProblem& problem, cudnn::LegacyApi* cudnn,
                                  const cudnn::ConvPointers& tensors, int64_t workspace_limit,
                                  ListingSink* sink);

}  // namespace convtune::worker::search

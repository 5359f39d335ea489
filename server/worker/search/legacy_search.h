// ListLegacyAlgorithms collects the legacy API's candidates: what cudnnFind* runs, in the order
// that cudnnGet*_v7 gives them.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "proto/model/problem/conv_problem.h"
#include "server/worker/cudnn/legacy_convolution.h"
#include "server/worker/search/listing_sink.h"

namespace convtune::worker::search {

// True if cudnnFind* may be called: a call runs every algorithm, and cannot be
// interrupted. The limit is 10^11 multiply-adds. An algorithm at 10^12 a second,
// a thirtieth of an H200's FMA rate, takes 0.1 s for that.
bool FindIsAffordable(const ConvProblem& problem);

// The math types whose lists are asked for, in the order in which they count:
// first what programs have without asking for anything else, as PyTorch's and
// ONNX Runtime's descriptors do. That is TENSOR_OP_MATH for f16, and
// DEFAULT_MATH for the rest, which allows TF32 for f32.
std::vector<cudnnMathType_t> MathTypesOfHeuristic(DataType type);

// Adds a list of cudnnGetConvolution*Algorithm_v7, fastest expected first, to those before it.
// Entries that did not succeed, and algorithms that are there already, are left out.
void AddExpected(const std::vector<cudnn::FoundAlgorithm>& list,
                 std::vector<cudnn::FoundAlgorithm>* expected);

// Runs cudnnFind*, if it is affordable, with the math types that make sense for
// the inputs, and passes to the sink what cudnnGet*_v7 lists, in its order, then what a search
// alone found, then, with the reason, what a search said is not supported. What failed
// otherwise in a search is a candidate like others: it may have failed for once. The list of
// cudnnGet*_v7 is passed on also where cuDNN refused the search, it was left out, or the
// deadline cut it off. The place in that list is the heuristic rank; where cuDNN refuses the
// list, none has one, and the sink is told. Needs a GPU. Errors are cuDNN's, when it refuses the
// search as a whole. `tensors`: what the search runs on; nullopt: nothing is run.
absl::Status ListLegacyAlgorithms(const ConvProblem& problem, cudnn::LegacyApi* cudnn,
                                  const std::optional<cudnn::ConvPointers>& tensors,
                                  int64_t workspace_limit, ListingSink* sink);

}  // namespace convtune::worker::search

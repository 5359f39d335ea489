#include "server/worker/search/legacy_search.h"

#include <utility>
#include <variant>
#include <vector>

#include "proto/base/status_macros.h"
#include "proto/model/problem/reduction_length.h"
#include "server/worker/cudnn/cudnn_status.h"
#include "server/worker/cudnn/legacy_notes.h"
#include "server/worker/device/device_memory.h"
#include "server/worker/search/legacy_ranks.h"

namespace convtune::worker::search {
namespace {

constexpr double kMostMultiplyAdds = 1e11;

// cudnnFind* also tries DEFAULT_MATH, whatever it is given.
std::vector<cudnnMathType_t> MathTypesOfSearch(DataType type) {
  switch (type) {
    case DataType::kF32:
      return {CUDNN_FMA_MATH, CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION};
    case DataType::kF64:
      return {CUDNN_DEFAULT_MATH};
    default:
      return {CUDNN_TENSOR_OP_MATH};
  }
}

LegacyRanks AskHeuristic(const ConvProblem& problem, cudnn::LegacyApi* cudnn, ListingSink* sink) {
  LegacyRanks ranks;
  for (const cudnnMathType_t math_type : MathTypesOfHeuristic(problem.data_type())) {
    const absl::StatusOr<std::vector<cudnn::FoundAlgorithm>> expected = cudnn->Expected(math_type);
    if (!expected.ok()) {
      // Places of another math type's list are not those of this one.
      sink->AddRefusal(expected.status());
      break;
    }
    ranks.Add(*expected);
  }
  return ranks;
}

Candidate ToCandidate(const ConvProblem& problem, const LegacyRanks& ranks,
                      const cudnn::FoundAlgorithm& found) {
  Candidate candidate;
  candidate.id = found.id;
  candidate.heuristic_rank = ranks.Of(found.id);
  candidate.numerical_notes = LegacyNumericalNotes(problem, found.id, found.deterministic);
  candidate.workspace_bytes = found.workspace_bytes;
  candidate.find_us = found.time_us;
  if (found.status != CUDNN_STATUS_SUCCESS) {
    candidate.status = CandidateStatus::kUnsupported;
    candidate.error_message = cudnnGetErrorString(found.status);
  }
  return candidate;
}

// Passes what cudnnFind* found on. `out_of_time`: something was left out for it.
absl::Status Search(const ConvProblem& problem, const LegacyRanks& ranks, cudnn::LegacyApi* cudnn,
                    const cudnn::ConvPointers& tensors, int64_t workspace_limit, ListingSink* sink,
                    bool* out_of_time) {
  std::vector<Candidate> refused;
  for (const cudnnMathType_t math_type : MathTypesOfSearch(problem.data_type())) {
    if (sink->Late()) {
      *out_of_time = true;
      return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(const int64_t bytes, cudnn->LargestWorkspace(math_type, workspace_limit));
    ASSIGN_OR_RETURN(const device::DeviceBuffer workspace, device::DeviceBuffer::Allocate(bytes));
    ASSIGN_OR_RETURN(const std::vector<cudnn::FoundAlgorithm> entries,
                     cudnn->Find(math_type, tensors, workspace.data(), bytes));
    for (const cudnn::FoundAlgorithm& entry : entries) {
      Candidate candidate = ToCandidate(problem, ranks, entry);
      if (entry.status != CUDNN_STATUS_SUCCESS) {
        refused.push_back(std::move(candidate));
      } else if (!sink->Offer(std::move(candidate))) {
        return absl::OkStatus();
      }
    }
  }
  // Behind the successes, since the sink takes each algorithm once and another
  // math type's search may have run it.
  for (Candidate& candidate : refused) {
    const absl::StatusOr<int64_t> needed =
        cudnn->WorkspaceBytes(std::get<LegacyAlgorithm>(candidate.id));
    if (needed.ok() && *needed > workspace_limit) {
      // Left to Prepare, which says that it is over the memory budget.
      candidate.error_message.clear();
    }
    if (!sink->Offer(std::move(candidate))) {
      return absl::OkStatus();
    }
  }
  return absl::OkStatus();
}

}  // namespace

bool FindIsAffordable(const ConvProblem& problem) {
  return MultiplyAdds(problem) <= kMostMultiplyAdds;
}

void ListExpectedAlgorithms(const ConvProblem& problem, cudnn::LegacyApi* cudnn,
                            ListingSink* sink) {
  const LegacyRanks ranks = AskHeuristic(problem, cudnn, sink);
  for (const cudnn::FoundAlgorithm& entry : ranks.ranked()) {
    if (!sink->Offer(ToCandidate(problem, ranks, entry))) {
      break;
    }
  }
}

absl::Status ListLegacyAlgorithms(const ConvProblem& problem, cudnn::LegacyApi* cudnn,
                                  const cudnn::ConvPointers& tensors, int64_t workspace_limit,
                                  ListingSink* sink) {
  const LegacyRanks ranks = AskHeuristic(problem, cudnn, sink);
  bool out_of_time = false;
  absl::Status searched;
  if (FindIsAffordable(problem)) {
    searched = Search(problem, ranks, cudnn, tensors, workspace_limit, sink, &out_of_time);
  } else {
    sink->MarkFindLeftOut();
  }
  // Behind a search that was refused, left out or cut off, too: the stock choice
  // is one of them.
  for (const cudnn::FoundAlgorithm& entry : ranks.ranked()) {
    if (!sink->Offer(ToCandidate(problem, ranks, entry))) {
      break;
    }
  }
  if (out_of_time) {
    sink->MarkOutOfTime();
  }
  return searched;
}

}  // namespace convtune::worker::search

#include "server/worker/search/legacy_search.h"

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "proto/base/status_macros.h"
#include "proto/model/problem/conv_problem.h"
#include "proto/model/tuning/note_rules.h"
#include "server/worker/device/device_memory.h"

namespace convtune::worker::search {
namespace {

constexpr double kMostFlops = 2e11;  // 10^11 multiply-adds

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

using Algorithms = std::vector<cudnn::FoundAlgorithm>;

// What cuDNN's heuristic lists; an algorithm's rank is its number in this list.
Algorithms AskHeuristic(const ConvProblem& problem, cudnn::LegacyApi* cudnn, ListingSink* sink) {
  Algorithms expected;
  for (const cudnnMathType_t math_type : MathTypesOfHeuristic(problem.data_type())) {
    const absl::StatusOr<Algorithms> list = cudnn->Expected(math_type);
    if (!list.ok()) {
      // Ranks of another math type's list are not those of this one.
      sink->AddRefusal(list.status());
      break;
    }
    AddExpected(*list, &expected);
  }
  return expected;
}

auto FindIn(const Algorithms& list, const LegacyAlgorithm& id) {
  return std::find_if(list.begin(), list.end(),
                      [&id](const cudnn::FoundAlgorithm& entry) { return entry.id == id; });
}

Candidate ToCandidate(const ConvProblem& problem, const Algorithms& expected,
                      const cudnn::FoundAlgorithm& found) {
  Candidate candidate;
  candidate.id = found.id;
  const auto rank = FindIn(expected, found.id);
  candidate.heuristic_rank =
      rank == expected.end() ? -1 : static_cast<int>(rank - expected.begin());
  candidate.numerical_notes =
      LegacyNotes(problem.operation(), problem.data_type(), problem.filter_extent(),
                  found.id.algorithm, found.id.math_type, found.deterministic);
  candidate.workspace_bytes = found.workspace_bytes;
  candidate.find_us = found.time_us;
  // What failed otherwise is tried as any candidate is, which says why it fails.
  if (CUDNN_STATUS_CATEGORY(static_cast<int>(found.status)) == CUDNN_STATUS_NOT_SUPPORTED) {
    candidate.status = CandidateStatus::kUnsupported;
    candidate.error_message = cudnnGetErrorString(found.status);
  }
  return candidate;
}

bool IsRefused(const Candidate& candidate) { return !candidate.error_message.empty(); }

// Adds what cudnnFind* found to `found`. `out_of_time`: something was left out for it.
absl::Status Search(const ConvProblem& problem, const Algorithms& expected, cudnn::LegacyApi* cudnn,
                    const cudnn::ConvPointers& tensors, int64_t workspace_limit,
                    const ListingSink& sink, std::vector<Candidate>* found, bool* out_of_time) {
  for (const cudnnMathType_t math_type : MathTypesOfSearch(problem.data_type())) {
    if (sink.Late(static_cast<int>(found->size()))) {
      *out_of_time = true;
      return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(const int64_t bytes, cudnn->LargestWorkspace(math_type, workspace_limit));
    ASSIGN_OR_RETURN(const device::DeviceBuffer workspace, device::DeviceBuffer::Allocate(bytes));
    ASSIGN_OR_RETURN(const Algorithms entries,
                     cudnn->Find(math_type, tensors, workspace.data(), bytes));
    for (const cudnn::FoundAlgorithm& entry : entries) {
      found->push_back(ToCandidate(problem, expected, entry));
      Candidate& candidate = found->back();
      if (!IsRefused(candidate)) continue;
      const absl::StatusOr<int64_t> needed =
          cudnn->WorkspaceBytes(std::get<LegacyAlgorithm>(candidate.id));
      // Left to Prepare, which says that it is over the memory budget.
      if (needed.ok() && *needed > workspace_limit) candidate.error_message.clear();
    }
  }
  return absl::OkStatus();
}

// Offers each algorithm once: in the order of cuDNN's heuristic, so that a limit on
// candidates costs the stock choice last, then what only a search found, then what was refused.
void OfferAll(std::vector<Candidate> found, ListingSink* sink) {
  const auto key = [](const Candidate& candidate) {
    const int rank = candidate.heuristic_rank;
    // Another math type's search may have run what one could not.
    return std::tuple(IsRefused(candidate), rank < 0 ? std::numeric_limits<int>::max() : rank,
                      candidate.find_us == 0);
  };
  std::stable_sort(found.begin(), found.end(),
                   [&key](const Candidate& a, const Candidate& b) { return key(a) < key(b); });
  for (const Candidate& candidate : found) {
    if (!sink->Offer(candidate)) return;
  }
}

}  // namespace

std::vector<cudnnMathType_t> MathTypesOfHeuristic(DataType type) {
  switch (type) {
    case DataType::kF16:
      return {CUDNN_TENSOR_OP_MATH};
    case DataType::kF32:
      return {CUDNN_DEFAULT_MATH, CUDNN_FMA_MATH, CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION};
    case DataType::kF64:
      return {CUDNN_DEFAULT_MATH};
    default:
      return {CUDNN_DEFAULT_MATH, CUDNN_TENSOR_OP_MATH};
  }
}

void AddExpected(const Algorithms& list, Algorithms* expected) {
  for (const cudnn::FoundAlgorithm& entry : list) {
    const bool known = FindIn(*expected, entry.id) != expected->end();
    if (entry.status == CUDNN_STATUS_SUCCESS && !known) expected->push_back(entry);
  }
}

bool FindIsAffordable(const ConvProblem& problem) { return EstimatedFlops(problem) <= kMostFlops; }

absl::Status ListLegacyAlgorithms(const ConvProblem& problem, cudnn::LegacyApi* cudnn,
                                  const std::optional<cudnn::ConvPointers>& tensors,
                                  int64_t workspace_limit, ListingSink* sink) {
  const Algorithms expected = AskHeuristic(problem, cudnn, sink);
  bool out_of_time = false;
  std::vector<Candidate> found;
  absl::Status searched;
  if (tensors && FindIsAffordable(problem)) {
    searched =
        Search(problem, expected, cudnn, *tensors, workspace_limit, *sink, &found, &out_of_time);
  } else if (tensors) {
    sink->MarkFindLeftOut();
  }
  // Where the search was refused, left out or cut off, too: the stock choice is one of these.
  for (const cudnn::FoundAlgorithm& entry : expected) {
    const bool known = std::any_of(found.begin(), found.end(), [&entry](const Candidate& c) {
      return c.id == CandidateId(entry.id);
    });
    if (!known) found.push_back(ToCandidate(problem, expected, entry));
  }
  OfferAll(std::move(found), sink);
  if (out_of_time) {
    sink->MarkOutOfTime();
  }
  return searched;
}

}  // namespace convtune::worker::search

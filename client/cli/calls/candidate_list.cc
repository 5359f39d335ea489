#include "client/cli/calls/candidate_list.h"

#include <algorithm>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "client/cli/output/units.h"
#include "proto/model/problem/conv_problem.h"
#include "proto/model/tuning/candidate.h"

namespace convtune::cli::calls {

bool OnTensorCores(const v1::Candidate& candidate) {
  return std::ranges::count(candidate.numerical_notes(), int{v1::NUMERICAL_NOTE_TENSOR_CORE}) > 0;
}

bool CompiledAtRunTime(const v1::Candidate& candidate) {
  return std::ranges::count(candidate.behavior_notes(),
                            int{v1::BEHAVIOR_NOTE_RUNTIME_COMPILATION}) > 0;
}

std::string WorkspaceWords(const v1::Candidate& candidate) {
  return candidate.workspace_bytes() > 0
             ? output::FormatBytes(candidate.workspace_bytes()) + " of workspace"
             : "no workspace";
}

std::string WithWorkspace(const v1::Candidate& candidate) {
  return absl::StrCat(candidate.text(), " with ", WorkspaceWords(candidate));
}

CandidateList::CandidateList(const v1::Tuning& tuning, bool no_tf32) {
  const auto problem = ConvProblem::Parse(tuning.problem_text());
  const bool without_tf32 = no_tf32 && problem.ok() && problem->data_type() == DataType::kF32;
  bool in_fallback = false, in_a_or_b = false;
  for (const v1::Candidate& candidate : tuning.candidates()) {
    const bool built = candidate.status() == v1::CANDIDATE_STATUS_FINALIZED ||
                       candidate.status() == v1::CANDIDATE_STATUS_TIMED;
    if (!built || !candidate.has_engine_config()) continue;
    if (without_tf32 && OnTensorCores(candidate)) continue;
    all_.push_back(&candidate);
    on_tensor_cores_ += OnTensorCores(candidate) ? 1 : 0;
    deterministic_ += candidate.deterministic() ? 1 : 0;
    compiled_ += CompiledAtRunTime(candidate) ? 1 : 0;
    in_fallback = in_fallback || candidate.fallback_place() > 0;
    in_a_or_b = in_a_or_b || candidate.mode_a_place() > 0 || candidate.mode_b_place() > 0;
  }
  last_resort_only_ = in_fallback && !in_a_or_b;
  std::stable_sort(all_.begin(), all_.end(), [](const v1::Candidate* a, const v1::Candidate* b) {
    return ListPlace(a->heuristic_rank()) < ListPlace(b->heuristic_rank());
  });
  for (const v1::Candidate* candidate : all_) {
    const auto order = [](const v1::Candidate& c) {
      return std::tuple(!OnTensorCores(c), c.workspace_bytes());
    };
    if (leanest_ == nullptr || order(*candidate) < order(*leanest_)) leanest_ = candidate;
  }
}

std::string CandidateList::ToText() const {
  if (empty()) return "no candidate that can be built";
  return absl::StrCat(output::Counted(size(), "candidate"), ", ", on_tensor_cores_,
                      " on tensor cores, first ", WithWorkspace(first()));
}

}  // namespace convtune::cli::calls

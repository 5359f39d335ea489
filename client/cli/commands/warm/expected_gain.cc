#include "client/cli/commands/warm/expected_gain.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <utility>

#include "client/cli/calls/candidate_list.h"
#include "proto/convert/problem_list.h"

namespace convtune::cli::commands::warm {
namespace {

// The candidate that a mode lists first of those that can be built; nullptr if
// it lists none.
const v1::Candidate* FirstOf(const calls::CandidateList& list,
                             int32_t (v1::Candidate::*place)() const) {
  const v1::Candidate* first = nullptr;
  for (const v1::Candidate* candidate : list.all()) {
    const int32_t own = (candidate->*place)();
    if (own > 0 && (first == nullptr || own < (first->*place)())) first = candidate;
  }
  return first;
}

}  // namespace

void AddModeChoices(const calls::TuningMap& tunings, FirstChoices* choices) {
  for (const auto& [problem, tuning] : tunings) {
    const calls::CandidateList list(tuning, /*no_tf32=*/false);
    for (const auto place : {&v1::Candidate::mode_a_place, &v1::Candidate::mode_b_place}) {
      const v1::Candidate* const first = FirstOf(list, place);
      if (first != nullptr) (*choices)[problem].push_back(first->text());
    }
  }
}

void AddStockChoices(const calls::TuningMap& tunings, FirstChoices* choices) {
  for (const auto& [problem, tuning] : tunings) {
    const calls::CandidateList list(tuning, /*no_tf32=*/false);
    if (!list.empty()) (*choices)[problem].push_back(list.first().text());
  }
}

double Disagreement(const std::vector<std::string>& choices) {
  if (choices.size() < 2) return 0;
  const std::set<std::string> distinct(choices.begin(), choices.end());
  return static_cast<double>(distinct.size() - 1) / static_cast<double>(choices.size() - 1);
}

std::vector<ProblemRow> MostGainFirst(const std::vector<ProblemRow>& rows,
                                      const FirstChoices& choices) {
  std::vector<std::pair<double, const ProblemRow*>> order;
  for (const ProblemRow& row : rows) {
    const auto known = choices.find(row.problem.ToText());
    const double more = known == choices.end() ? 0 : Disagreement(known->second);
    order.emplace_back(static_cast<double>(row.count) * EstimatedFlops(row.problem) * (1 + more),
                       &row);
  }
  std::stable_sort(order.begin(), order.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<ProblemRow> ordered;
  for (const auto& [gain, row] : order) ordered.push_back(*row);
  return ordered;
}

}  // namespace convtune::cli::commands::warm

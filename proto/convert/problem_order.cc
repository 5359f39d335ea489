#include "proto/convert/problem_order.h"

#include <algorithm>
#include <limits>
#include <string>
#include <unordered_map>

#include "proto/model/problem/reduction_length.h"

namespace convtune {

double EstimatedFlops(const ConvProblem& problem) { return 2 * MultiplyAdds(problem); }

std::vector<ProblemRow> MostWorkFirst(const std::vector<ProblemRow>& rows) {
  std::vector<ProblemRow> ordered;
  std::unordered_map<std::string, size_t> place;
  for (const ProblemRow& row : rows) {
    const auto [it, is_new] = place.emplace(row.problem.ToText(), ordered.size());
    if (is_new) {
      ordered.push_back(row);
      continue;
    }
    int64_t& count = ordered[it->second].count;
    count = row.count > std::numeric_limits<int64_t>::max() - count
                ? std::numeric_limits<int64_t>::max()
                : count + row.count;
  }
  const auto work = [](const ProblemRow& row) {
    return static_cast<double>(row.count) * EstimatedFlops(row.problem);
  };
  std::stable_sort(ordered.begin(), ordered.end(),
                   [&work](const ProblemRow& a, const ProblemRow& b) { return work(a) > work(b); });
  return ordered;
}

}  // namespace convtune

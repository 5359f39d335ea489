#include "proto/convert/problem_order.h"

#include <algorithm>
#include <limits>
#include <string>
#include <unordered_map>

namespace convtune {

double EstimatedFlops(const ConvProblem& problem) {
  double flops = 2;
  for (const int64_t dim : problem.y_dims()) flops *= static_cast<double>(dim);
  const std::vector<int64_t>& w = problem.w_dims();
  for (size_t i = 1; i < w.size(); ++i) flops *= static_cast<double>(w[i]);
  return flops;
}

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

#include <algorithm>
#include <map>
#include <utility>

#include "client/report/analysis.h"

namespace convtune {
namespace {

// The most frequent of them (but -1), the first one of equals; -1 if there is none.
int MostFrequent(const std::vector<int>& candidates) {
  std::map<int, int> counts;
  int best = -1;
  for (const int c : candidates) {
    if (c < 0) continue;
    ++counts[c];
    if (best < 0 || counts[c] > counts[best]) best = c;
  }
  return best;
}

class PairMaker {
 public:
  PairMaker(const ReportAnalysis& analysis, const std::vector<int>& group)
      : a_(analysis), group_(group) {}

  ReportPair Make() {
    const ReportRow& first = Row(group_[0]);
    pair_.environment = first.environment;
    pair_.problem = first.problem;
    pair_.nodes = static_cast<int>(group_.size());
    std::vector<int> winners;
    std::vector<int> stocks;
    for (const int i : group_) {
      const ReportRow& row = Row(i);
      pair_.timed_nodes += row.timed() ? 1 : 0;
      pair_.evidence = std::max(pair_.evidence, row.evidence);
      pair_.search_seconds += absl::ToDoubleSeconds(row.elapsed);
      pair_.stale_nodes += a_.stale_row[static_cast<size_t>(i)] ? 1 : 0;
      // Where some have timed it, the others' guesses do not count.
      if (row.timed() || pair_.timed_nodes == 0) winners.push_back(row.winner);
      stocks.push_back(row.stock);
    }
    pair_.winner = MostFrequent(winners);
    pair_.stock = MostFrequent(stocks);
    if (pair_.timed_nodes > 0) Pool();
    return pair_;
  }

  // What nodes have found out against the common winner.
  ReportDisagreement Disagreement() {
    ReportDisagreement found;
    found.environment = pair_.environment;
    found.problem = pair_.problem;
    found.nodes = pair_.timed_nodes;
    found.winner = pair_.winner;
    std::map<int, ReportDisagreement::Other> others;
    for (const int i : group_) {
      const ReportRow& row = Row(i);
      if (!row.timed() || row.winner == pair_.winner) continue;
      const ReportTime& own = row.times.front();
      const ReportTime* common = row.TimeOf(pair_.winner);
      if (common == nullptr || common->low_us <= own.high_us ||
          common->median_us <= own.median_us * (1 + a_.options.least_change)) {
        continue;
      }
      ReportDisagreement::Other& other = others[row.winner];
      other.candidate = row.winner;
      other.places.push_back(row.place);
      other.cost_us += common->median_us - own.median_us;
      other.cost_ratio =
          std::max(other.cost_ratio, static_cast<double>(common->median_us) / own.median_us);
      found.cost_us += common->median_us - own.median_us;
    }
    for (auto& [candidate, other] : others) found.others.push_back(std::move(other));
    std::stable_sort(found.others.begin(), found.others.end(),
                     [](const auto& x, const auto& y) { return x.cost_us > y.cost_us; });
    return found;
  }

 private:
  const ReportRow& Row(int i) const { return a_.data.rows()[static_cast<size_t>(i)]; }

  // The median over nodes of what the candidate takes; 0 if none timed it.
  double Pooled(int candidate) const {
    std::vector<double> times;
    for (const int i : group_) {
      const ReportTime* time = Row(i).TimeOf(candidate);
      if (time != nullptr) times.push_back(a_.AtModelSpeed(i, time->median_us));
    }
    return times.empty() ? 0 : MedianOf(&times);
  }

  // Which candidate is best for all, as far as enough of them have timed it.
  // What most nodes have settled on stays unless another one is clearly better.
  void Pool() {
    std::map<int, int> timed_by;
    for (const int i : group_) {
      for (const ReportTime& time : Row(i).times) ++timed_by[time.candidate];
    }
    pair_.winner_us = Pooled(pair_.winner);
    double least = pair_.winner_us / (1 + a_.options.least_change);
    if (pair_.timed_nodes > 1) {
      for (const auto& [candidate, count] : timed_by) {
        if (count * 2 < pair_.timed_nodes) continue;
        const double us = Pooled(candidate);
        if (us >= least) continue;
        least = us;
        pair_.winner = candidate;
        pair_.winner_us = us;
      }
    }
    if (pair_.stock >= 0) pair_.stock_us = Pooled(pair_.stock);
  }

  const ReportAnalysis& a_;
  const std::vector<int>& group_;
  ReportPair pair_;
};

}  // namespace

void AddPairs(const ReportAnalysis& analysis, Report* report) {
  for (const std::vector<int>& group : analysis.groups) {
    PairMaker maker(analysis, group);
    ReportPair pair = maker.Make();
    if (pair.timed_nodes > 1) {
      ReportDisagreement found = maker.Disagreement();
      for (const auto& other : found.others) {
        pair.disagreeing_nodes += static_cast<int>(other.places.size());
      }
      pair.disagreement_us = found.cost_us;
      if (!found.others.empty()) report->disagreements.push_back(std::move(found));
    }
    report->pairs.push_back(pair);
  }
  std::stable_sort(report->disagreements.begin(), report->disagreements.end(),
                   [](const auto& x, const auto& y) { return x.cost_us > y.cost_us; });
}

}  // namespace convtune

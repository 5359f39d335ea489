#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "client/report/analysis.h"

namespace convtune {
namespace {

class PairMaker {
 public:
  PairMaker(const ReportAnalysis& analysis, const std::vector<int>& group)
      : a_(analysis), group_(group) {}

  ReportPair Make() {
    const ReportRow& first = Row(group_[0]);
    pair_.environment = first.environment;
    pair_.problem = first.problem;
    pair_.nodes = static_cast<int>(group_.size());
    std::vector<const ReportRow*> rows;
    for (const int i : group_) {
      const ReportRow& row = Row(i);
      rows.push_back(&row);
      pair_.timed_nodes += row.timed() ? 1 : 0;
      pair_.evidence = std::max(pair_.evidence, row.evidence);
      pair_.search_seconds += absl::ToDoubleSeconds(row.elapsed);
      pair_.stale_nodes += a_.stale_row[static_cast<size_t>(i)] ? 1 : 0;
    }
    const CommonChoice common = ChooseCommon(rows, a_.data.candidates(), a_.options.least_change);
    pair_.winner = common.winner;
    pair_.stock = common.stock;
    if (pair_.timed_nodes > 0) {
      pair_.winner_us = Pooled(pair_.winner);
      if (pair_.stock >= 0) pair_.stock_us = Pooled(pair_.stock);
    }
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

  const ReportAnalysis& a_;
  const std::vector<int>& group_;
  ReportPair pair_;
};

// Numbers of few candidates; far quicker than a map.
class Counts {
 public:
  int& operator[](int candidate) {
    for (auto& [known, count] : counts_) {
      if (known == candidate) return count;
    }
    return counts_.emplace_back(candidate, 0).second;
  }
  const std::vector<std::pair<int, int>>& all() const { return counts_; }

 private:
  std::vector<std::pair<int, int>> counts_;
};

}  // namespace

int MostFrequent(const std::vector<int>& candidates, const std::vector<std::string>& texts) {
  Counts counts;
  for (const int c : candidates) {
    if (c >= 0) ++counts[c];
  }
  int best = -1;
  int most = 0;
  for (const auto& [c, count] : counts.all()) {
    if (count < most ||
        (count == most && texts[static_cast<size_t>(best)] < texts[static_cast<size_t>(c)])) {
      continue;
    }
    best = c;
    most = count;
  }
  return best;
}

CommonChoice ChooseCommon(const std::vector<const ReportRow*>& rows,
                          const std::vector<std::string>& texts, double least_change) {
  std::vector<int> winners, stocks;
  size_t timed = 0;
  for (const ReportRow* row : rows) {
    timed += row->timed() ? 1 : 0;
    // Where some have timed it, the others' guesses do not count.
    if (row->timed() || timed == 0) winners.push_back(row->winner);
    stocks.push_back(row->stock);
  }
  CommonChoice common;
  common.settled = common.winner = MostFrequent(winners, texts);
  common.stock = MostFrequent(stocks, texts);
  if (timed < 2) return common;
  Counts timed_by;
  for (const ReportRow* row : rows) {
    for (const ReportTime& time : row->times) ++timed_by[time.candidate];
  }
  double least = 1 / (1 + least_change);
  for (const auto& [candidate, count] : timed_by.all()) {
    if (static_cast<size_t>(count) * 2 < timed) continue;
    // Against the settled one on the same card: how fast the card is cancels out.
    std::vector<double> ratios;
    for (const ReportRow* row : rows) {
      const ReportTime* const own = row->TimeOf(candidate);
      const ReportTime* const settled = own != nullptr ? row->TimeOf(common.settled) : nullptr;
      if (settled != nullptr) {
        ratios.push_back(static_cast<double>(own->median_us) / settled->median_us);
      }
    }
    if (ratios.size() * 2 < timed) continue;
    const double ratio = MedianOf(&ratios);
    if (ratio > least) continue;
    if (ratio == least &&
        (common.winner == common.settled ||
         texts[static_cast<size_t>(common.winner)] < texts[static_cast<size_t>(candidate)])) {
      continue;
    }
    least = ratio;
    common.winner = candidate;
  }
  return common;
}

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

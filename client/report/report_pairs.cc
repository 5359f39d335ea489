#include <algorithm>
#include <iterator>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "client/report/analysis.h"

namespace convtune::report {
namespace {

class PairMaker {
 public:
  PairMaker(const ReportAnalysis& analysis, size_t group)
      : a_(analysis),
        group_(analysis.groups[group]),
        timed_(group_.first(analysis.timed_counts[group])) {}

  ReportPair Make(std::vector<uint8_t>* stale_rows) {
    const ReportRow& first = Row(group_[0]);
    pair_.environment = first.environment;
    pair_.problem = first.problem;
    pair_.nodes = static_cast<int>(group_.size());
    pair_.timed_nodes = static_cast<int>(timed_.size());
    std::vector<const ReportRow*> rows;
    rows.reserve(group_.size());
    for (const int i : group_) {
      const ReportRow& row = Row(i);
      rows.push_back(&row);
      pair_.evidence = std::max(pair_.evidence, row.evidence);
      pair_.search_seconds += row.elapsed_seconds();
      const bool stale = a_.IsStale(row);
      pair_.stale_nodes += stale ? 1 : 0;
      (*stale_rows)[static_cast<size_t>(i)] = stale ? 1 : 0;
    }
    const CommonChoice common = ChooseCommon(rows, a_.data.candidates(), a_.options.least_change);
    pair_.winner = common.winner;
    pair_.stock = common.stock;
    if (pair_.timed_nodes > 0) {
      pair_.winner_us = Pooled(pair_.winner);
      if (pair_.stock == pair_.winner) {
        pair_.stock_us = pair_.winner_us;
      } else if (pair_.stock >= 0) {
        pair_.stock_us = Pooled(pair_.stock);
      }
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
    for (const int i : timed_) {
      const ReportRow& row = Row(i);
      if (row.winner == pair_.winner) continue;
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
  const ReportRow& Row(int i) const { return a_.Row(i); }

  // The median over nodes of what the candidate takes; 0 if none timed it.
  double Pooled(int candidate) const {
    std::vector<double> times;
    times.reserve(timed_.size());
    for (const int i : timed_) {
      const ReportRow& row = Row(i);
      const ReportTime* time = row.TimeOf(candidate);
      if (time != nullptr) times.push_back(a_.AtModelSpeed(row, time->median_us));
    }
    return times.empty() ? 0 : MedianOf(&times);
  }

  const ReportAnalysis& a_;
  const ReportAnalysis::Group group_;
  const ReportAnalysis::Group timed_;
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
    if (candidate == common.settled || static_cast<size_t>(count) * 2 < timed) continue;
    // Against the settled one on the same GPU: how fast the GPU is cancels out.
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

RowCounts AddPairs(const ReportAnalysis& analysis, Report* report) {
  const size_t count = analysis.groups.size();
  report->stale_rows.resize(analysis.data.rows().size());
  report->pairs.resize(count);
  std::vector<RowCounts> counts(analysis.workers);
  using Numbered = std::pair<size_t, ReportDisagreement>;  // by group
  std::vector<std::vector<Numbered>> disagreements(analysis.workers);
  InParallel(analysis.workers, count, [&](size_t worker, size_t begin, size_t end) {
    for (size_t g = begin; g < end; ++g) {
      PairMaker maker(analysis, g);
      ReportPair& pair = report->pairs[g] = maker.Make(&report->stale_rows);
      counts[worker].stale += pair.stale_nodes;
      for (const int i : analysis.groups[g]) {
        ++counts[worker].by_evidence[static_cast<size_t>(analysis.Row(i).evidence)];
      }
      if (pair.timed_nodes < 2) continue;
      ReportDisagreement found = maker.Disagreement();
      for (const auto& other : found.others) {
        pair.disagreeing_nodes += static_cast<int>(other.places.size());
      }
      pair.disagreement_us = found.cost_us;
      if (!found.others.empty()) disagreements[worker].emplace_back(g, std::move(found));
    }
  });
  RowCounts all;
  for (const RowCounts& each : counts) {
    all.stale += each.stale;
    for (size_t i = 0; i < all.by_evidence.size(); ++i) all.by_evidence[i] += each.by_evidence[i];
  }
  for (const ReportPair& pair : report->pairs) all.search_seconds += pair.search_seconds;
  for (const auto& [group, rows] : analysis.older) {
    for (const int i : rows) {
      const ReportRow& row = analysis.Row(i);
      const bool stale = analysis.IsStale(row);
      report->stale_rows[static_cast<size_t>(i)] = stale ? 1 : 0;
      all.stale += stale ? 1 : 0;
      all.search_seconds += row.elapsed_seconds();
      ++all.by_evidence[static_cast<size_t>(row.evidence)];
    }
  }
  std::vector<Numbered> found;
  for (auto& each : disagreements) std::move(each.begin(), each.end(), std::back_inserter(found));
  std::sort(found.begin(), found.end(), [](const Numbered& x, const Numbered& y) {
    return std::tuple(-x.second.cost_us, x.first) < std::tuple(-y.second.cost_us, y.first);
  });
  for (auto& [group, disagreement] : found) {
    report->disagreements.push_back(std::move(disagreement));
  }
  return all;
}

}  // namespace convtune::report

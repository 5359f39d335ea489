#include <algorithm>
#include <map>

#include "client/report/analysis.h"

namespace convtune::report {
namespace {

using Pair = ReportAnalysis::Pair;

// The median over nodes of what the candidate takes; 0 if none timed it.
double Pooled(const ReportAnalysis& analysis, const Pair& pair, int candidate) {
  std::vector<double> times;
  times.reserve(pair.timed.size());
  for (const ReportRow& row : pair.timed) {
    const ReportTime* const time = row.TimeOf(candidate);
    if (time != nullptr) times.push_back(analysis.AtModelSpeed(row, time->median_us));
  }
  return times.empty() ? 0 : MedianOf(std::move(times));
}

// What nodes have found out against the common winner.
ReportDisagreement Disagreement(const Pair& pair, int winner, double least_change) {
  ReportDisagreement found;
  found.environment = pair.environment;
  found.problem = pair.problem;
  found.nodes = static_cast<int>(pair.timed.size());
  found.winner = winner;
  std::map<int, ReportDisagreement::Other> others;
  for (const ReportRow& row : pair.timed) {
    if (row.winner == winner) continue;
    const ReportTime& own = row.times.front();
    const ReportTime* const common = row.TimeOf(winner);
    if (common == nullptr || common->low_us <= own.high_us ||
        common->median_us <= own.median_us * (1 + least_change)) {
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

}  // namespace

int MostFrequent(const std::map<int, int>& counts, const std::vector<std::string>& texts) {
  int best = -1;
  int most = 0;
  for (const auto& [c, count] : counts) {
    if (c < 0 || count < most) continue;
    if (count == most && texts[static_cast<size_t>(best)] < texts[static_cast<size_t>(c)]) continue;
    best = c;
    most = count;
  }
  return best;
}

CommonChoice ChooseCommon(std::span<const ReportRow> rows, const std::vector<std::string>& texts,
                          double least_change) {
  const auto timed = static_cast<size_t>(
      std::count_if(rows.begin(), rows.end(), [](const ReportRow& row) { return row.timed(); }));
  std::map<int, int> winners, stocks;
  std::map<int, size_t> timed_by;
  for (const ReportRow& row : rows) {
    // Where some have timed it, the others' guesses do not count.
    if (row.timed() || timed == 0) ++winners[row.winner];
    ++stocks[row.stock];
    for (const ReportTime& time : row.times) ++timed_by[time.candidate];
  }
  CommonChoice common;
  common.settled = common.winner = MostFrequent(winners, texts);
  common.stock = MostFrequent(stocks, texts);
  if (timed < 2) return common;
  double least = 1 / (1 + least_change);
  for (const auto& [candidate, count] : timed_by) {
    if (candidate == common.settled || count * 2 < timed) continue;
    // Against the settled one on the same GPU: how fast the GPU is cancels out.
    std::vector<double> ratios;
    for (const ReportRow& row : rows) {
      const ReportTime* const own = row.TimeOf(candidate);
      const ReportTime* const settled = own != nullptr ? row.TimeOf(common.settled) : nullptr;
      if (settled != nullptr) {
        ratios.push_back(static_cast<double>(own->median_us) / settled->median_us);
      }
    }
    if (ratios.size() * 2 < timed) continue;
    const double ratio = MedianOf(std::move(ratios));
    const auto text = [&](int c) { return texts[static_cast<size_t>(c)]; };
    if (ratio < least || (ratio == least && common.winner != common.settled &&
                          text(candidate) < text(common.winner))) {
      least = ratio;
      common.winner = candidate;
    }
  }
  return common;
}

void AddPairs(const ReportAnalysis& a, Report* report) {
  ReportHeadline& headline = report->headline;
  int64_t stale = 0;
  for (const Pair& of : a.pairs) {
    ReportPair& pair = report->pairs.emplace_back();
    pair.environment = of.environment;
    pair.problem = of.problem;
    pair.nodes = static_cast<int>(of.newest.size());
    pair.timed_nodes = static_cast<int>(of.timed.size());
    for (const ReportAnalysis::Rows rows : {of.newest, of.older}) {
      for (ReportRow& row : rows) {
        row.stale = a.IsStale(row);
        stale += row.stale ? 1 : 0;
        ++headline.rows;
        headline.measured += row.evidence == Evidence::kMeasured ? 1 : 0;
        headline.incomplete += row.evidence == Evidence::kIncomplete ? 1 : 0;
        headline.observed += row.evidence == Evidence::kObserved ? 1 : 0;
        headline.heuristic += row.evidence == Evidence::kHeuristic ? 1 : 0;
        headline.search_seconds += row.elapsed_seconds();
      }
    }
    for (const ReportRow& row : of.newest) {
      pair.evidence = std::max(pair.evidence, row.evidence);
      pair.search_seconds += row.elapsed_seconds();
      pair.stale_nodes += row.stale ? 1 : 0;
    }
    const CommonChoice common =
        ChooseCommon(of.newest, a.data.candidates(), a.options.least_change);
    pair.winner = common.winner;
    pair.stock = common.stock;
    pair.winner_us = Pooled(a, of, pair.winner);
    pair.stock_us = pair.stock == pair.winner ? pair.winner_us : Pooled(a, of, pair.stock);
    if (pair.timed_nodes < 2) continue;
    ReportDisagreement found = Disagreement(of, pair.winner, a.options.least_change);
    for (const auto& other : found.others) {
      pair.disagreeing_nodes += static_cast<int>(other.places.size());
    }
    pair.disagreement_us = found.cost_us;
    if (!found.others.empty()) report->disagreements.push_back(std::move(found));
  }
  headline.failed = headline.rows - headline.measured - headline.incomplete - headline.observed -
                    headline.heuristic;
  if (headline.rows > 0) {
    headline.stale = static_cast<double>(stale) / static_cast<double>(headline.rows);
  }
  std::stable_sort(report->disagreements.begin(), report->disagreements.end(),
                   [](const auto& x, const auto& y) { return x.cost_us > y.cost_us; });
}

}  // namespace convtune::report

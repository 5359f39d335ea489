#include "client/report/report.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include "client/report/analysis.h"

namespace convtune::report {
namespace {

template <typename Number>
double Ratio(Number part, Number whole) {
  return static_cast<double>(part) / static_cast<double>(whole);
}

void CountRows(const ReportAnalysis& analysis, const RowCounts& counts, ReportHeadline* headline) {
  for (const int64_t rows : counts.by_evidence) headline->rows += rows;
  const auto rows_of = [&](Evidence evidence) {
    return counts.by_evidence[static_cast<size_t>(evidence)];
  };
  headline->measured = rows_of(Evidence::kMeasured);
  headline->incomplete = rows_of(Evidence::kIncomplete);
  headline->observed = rows_of(Evidence::kObserved);
  headline->heuristic = rows_of(Evidence::kHeuristic);
  headline->failed = headline->rows - headline->measured - headline->incomplete -
                     headline->observed - headline->heuristic;
  std::set<std::string> nodes;
  for (size_t g = 0; g < analysis.gpus.size(); ++g) {
    if (!analysis.HasRows(g)) continue;
    nodes.insert(analysis.gpus[g].node);
    headline->gpus += analysis.IsNoCard(g) ? 0 : 1;
  }
  headline->nodes = static_cast<int>(nodes.size());
  headline->search_seconds = counts.search_seconds;
  if (headline->rows > 0) headline->stale = Ratio(counts.stale, headline->rows);
}

void CountKeys(const ReportData& data, Report* report) {
  std::vector<bool> environments(data.environments().size());
  std::vector<bool> problems(data.problems().size());
  for (const ReportPair& pair : report->pairs) {
    environments[static_cast<size_t>(pair.environment)] = true;
    problems[static_cast<size_t>(pair.problem)] = true;
  }
  const auto count = [](const std::vector<bool>& seen) {
    return static_cast<int>(std::count(seen.begin(), seen.end(), true));
  };
  report->headline.environments = count(environments);
  report->headline.problems = count(problems);
}

void CountPairs(const ReportData& data, Report* report) {
  ReportHeadline& headline = report->headline;
  double logs = 0;
  int64_t stock_is_best = 0;
  std::set<std::pair<std::string, std::string>> known;
  for (const ReportPair& pair : report->pairs) {
    ++headline.pairs;
    known.emplace(data.environments()[static_cast<size_t>(pair.environment)].Name(),
                  data.problems()[static_cast<size_t>(pair.problem)].text);
    if (pair.timed_nodes == 0) continue;
    ++headline.timed_pairs;
    if (pair.stock_us <= 0 || pair.winner_us <= 0) continue;
    ++headline.compared_pairs;
    logs += std::log(pair.stock_us / pair.winner_us);
    stock_is_best += pair.stock == pair.winner ? 1 : 0;
  }
  for (const ReportWanted& wanted : report->wanted) {
    headline.wanted_pairs += known.contains({wanted.environment, wanted.problem}) ? 0 : 1;
  }
  if (headline.pairs + headline.wanted_pairs > 0) {
    headline.coverage = Ratio(headline.timed_pairs, headline.pairs + headline.wanted_pairs);
  }
  if (headline.compared_pairs > 0) {
    headline.gain = std::exp(logs / static_cast<double>(headline.compared_pairs));
    headline.stock_is_best = Ratio(stock_is_best, headline.compared_pairs);
  }
}

void AddShares(const ReportData& data, Report* report) {
  std::map<std::tuple<std::string, DataType, TensorLayout, Operation>, std::map<std::string, int>>
      counts;
  for (const ReportPair& pair : report->pairs) {
    if (pair.winner < 0) continue;
    const ReportProblem& problem = data.problems()[static_cast<size_t>(pair.problem)];
    const Environment& environment = data.environments()[static_cast<size_t>(pair.environment)];
    ++counts[{environment.gpu_model, problem.data_type, problem.layout, problem.operation}]
            [EngineOf(data.candidates()[static_cast<size_t>(pair.winner)])];
  }
  for (const auto& [key, engines] : counts) {
    ReportShare share;
    std::tie(share.gpu_model, share.data_type, share.layout, share.operation) = key;
    for (const auto& [engine, count] : engines) {
      share.pairs += count;
      share.engines.emplace_back(engine, count);
    }
    std::stable_sort(share.engines.begin(), share.engines.end(),
                     [](const auto& a, const auto& b) { return a.second > b.second; });
    report->shares.push_back(std::move(share));
  }
}

void AddRoofs(const ReportData& data, Report* report) {
  std::map<std::pair<std::string, DataType>, ReportRoof> roofs;
  for (const ReportPair& pair : report->pairs) {
    if (pair.winner_us <= 0) continue;
    const ReportProblem& problem = data.problems()[static_cast<size_t>(pair.problem)];
    const std::string& model = data.environments()[static_cast<size_t>(pair.environment)].gpu_model;
    ReportRoof& roof = roofs[{model, problem.data_type}];
    roof.gpu_model = model;
    roof.data_type = problem.data_type;
    roof.tflops = std::max(roof.tflops, problem.flops / pair.winner_us / 1e6);
    roof.gbytes_per_second = std::max(
        roof.gbytes_per_second, static_cast<double>(problem.tensor_bytes) / pair.winner_us / 1e3);
    ++roof.pairs;
  }
  for (const auto& [key, roof] : roofs) report->roofs.push_back(roof);
}

}  // namespace

Report MakeReport(const ReportData& data, const ReportOptions& options) {
  Report report;
  report.options = options;
  report.wanted = data.Wanted();
  const ReportAnalysis analysis(data, options);
  const RowCounts counts = AddPairs(analysis, &report);
  AddUpgrades(analysis, &report);
  AddShares(data, &report);
  AddRoofs(data, &report);
  for (size_t g = 0; g < analysis.gpus.size(); ++g) {
    if (analysis.HasRows(g)) report.gpus.push_back(analysis.gpus[g]);
  }
  std::stable_sort(report.gpus.begin(), report.gpus.end(),
                   [](const ReportGpu& a, const ReportGpu& b) { return a.ratio > b.ratio; });
  CountRows(analysis, counts, &report.headline);
  CountKeys(data, &report);
  CountPairs(data, &report);
  if (data.counters() && data.counters()->lookups > 0) {
    report.headline.hit_ratio = Ratio(data.counters()->hits, data.counters()->lookups);
  }
  report.headline.disagreements = static_cast<int>(report.disagreements.size());
  for (const ReportGpu& gpu : report.gpus) report.headline.slow_gpus += gpu.slow ? 1 : 0;
  for (const ReportUpgrade& upgrade : report.upgrades) {
    report.headline.regressions += upgrade.regressions;
  }
  return report;
}

}  // namespace convtune::report

#include "client/report/report.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include "client/report/analysis.h"

namespace convtune::report {
namespace {

double Ratio(int64_t part, int64_t whole) {
  return static_cast<double>(part) / static_cast<double>(whole);
}

void CountPairs(const ReportData& data, Report* report) {
  ReportHeadline& headline = report->headline;
  double logs = 0;
  int64_t stock_is_best = 0;
  std::set<int> environments, problems;
  std::set<std::pair<std::string, std::string>> known;
  for (const ReportPair& pair : report->pairs) {
    ++headline.pairs;
    environments.insert(pair.environment);
    problems.insert(pair.problem);
    known.emplace(data.EnvironmentOf(pair).Name(), data.ProblemOf(pair).text);
    if (pair.timed_nodes == 0) continue;
    ++headline.timed_pairs;
    if (pair.stock_us <= 0 || pair.winner_us <= 0) continue;
    ++headline.compared_pairs;
    logs += std::log(pair.stock_us / pair.winner_us);
    stock_is_best += pair.stock == pair.winner ? 1 : 0;
  }
  headline.environments = static_cast<int>(environments.size());
  headline.problems = static_cast<int>(problems.size());
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
    const ReportProblem& problem = data.ProblemOf(pair);
    ++counts[{data.EnvironmentOf(pair).gpu_model, problem.data_type, problem.layout,
              problem.operation}][EngineOf(data.candidates()[static_cast<size_t>(pair.winner)])];
  }
  for (const auto& [key, engines] : counts) {
    ReportShare& share = report->shares.emplace_back();
    std::tie(share.gpu_model, share.data_type, share.layout, share.operation) = key;
    share.engines.assign(engines.begin(), engines.end());
    for (const auto& [engine, count] : engines) share.pairs += count;
    std::stable_sort(share.engines.begin(), share.engines.end(),
                     [](const auto& a, const auto& b) { return a.second > b.second; });
  }
}

void AddRoofs(const ReportData& data, Report* report) {
  std::map<std::pair<std::string, DataType>, ReportRoof> roofs;
  for (const ReportPair& pair : report->pairs) {
    if (pair.winner_us <= 0) continue;
    const ReportProblem& problem = data.ProblemOf(pair);
    const std::string& model = data.EnvironmentOf(pair).gpu_model;
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

Report MakeReport(const ReportOptions& options, ReportData* data) {
  Report report;
  report.options = options;
  report.wanted = data->Wanted();
  const ReportAnalysis analysis(options, data);
  AddPairs(analysis, &report);
  AddUpgrades(analysis, &report);
  AddShares(*data, &report);
  AddRoofs(*data, &report);
  CountPairs(*data, &report);
  report.gpus = analysis.gpus;
  std::stable_sort(report.gpus.begin(), report.gpus.end(),
                   [](const ReportGpu& a, const ReportGpu& b) { return a.ratio > b.ratio; });
  ReportHeadline& headline = report.headline;
  std::set<std::string> nodes;
  for (const ReportGpu& gpu : report.gpus) {
    nodes.insert(gpu.node);
    headline.slow_gpus += gpu.slow ? 1 : 0;
  }
  headline.nodes = static_cast<int>(nodes.size());
  headline.gpus = analysis.cards;
  headline.disagreements = static_cast<int>(report.disagreements.size());
  for (const ReportUpgrade& upgrade : report.upgrades) headline.regressions += upgrade.regressions;
  if (data->counters() && data->counters()->lookups > 0) {
    headline.hit_ratio = Ratio(data->counters()->hits, data->counters()->lookups);
  }
  return report;
}

}  // namespace convtune::report

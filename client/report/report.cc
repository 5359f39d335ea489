#include "client/report/report.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include "client/report/analysis.h"
#include "proto/model/tuning/median.h"

namespace convtune::report {
namespace {

// GPUs that a model's median takes, and problems that a GPU's ratio takes.
constexpr size_t kLeastGpus = 3;
constexpr int kLeastProblems = 8;
// Of so few values the deviation may be small by chance.
constexpr size_t kFew = 10;
// A median's standard error over that of the mean, and a standard deviation
// over the median absolute deviation, of normal values.
constexpr double kMedianError = 1.2533;
constexpr double kDeviationOfMad = 1.4826;
constexpr double kSigmas = 3;

using Pair = ReportAnalysis::Pair;

// The median over nodes of what the candidate takes; 0 if none timed it.
double Pooled(const ReportAnalysis& analysis, const Pair& pair, int candidate) {
  std::vector<double> times;
  times.reserve(pair.timed.size());
  for (const ReportRow& row : pair.timed) {
    const ReportTime* const time = row.TimeOf(candidate);
    if (time != nullptr) times.push_back(analysis.AtModelSpeed(row, time->median_us));
  }
  return Median(std::move(times));
}

// What nodes have found out against the common winner.
ReportDisagreement FindDisagreement(const Pair& pair, int winner) {
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
        common->median_us <= own.median_us * (1 + kLeastChange)) {
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

// In an order that does not depend on that of the rows, so that numbers that
// depend on an order are the same from every source.
void ReportAnalysis::NumberGpus() {
  struct Gpu {
    std::vector<std::pair<int, int>> cells;  // place and environment
    CudnnVersion newest;
  };
  // By node, UUID, model, SM count, MIG profile, and whether it is no card.
  std::map<std::tuple<std::string, std::string, std::string, int, std::string, bool>, Gpu> found;
  for (int p = 0; p < static_cast<int>(data.places().size()); ++p) {
    for (int e = 0; e < static_cast<int>(data.environments().size()); ++e) {
      if (!cells_[Index(p, e)].seen) continue;
      const ReportPlace& place = data.places()[static_cast<size_t>(p)];
      const Environment& of = data.environments()[static_cast<size_t>(e)];
      Gpu& gpu = found[{place.node, place.gpu_uuid, of.gpu_model, of.sm_count, of.mig_profile,
                        of.profile || of.simulated()}];
      gpu.cells.emplace_back(p, e);
      gpu.newest = std::max(gpu.newest, of.cudnn);
    }
  }
  for (const auto& [key, gpu] : found) {
    for (const auto& [p, e] : gpu.cells) {
      cells_[Index(p, e)].gpu = static_cast<int>(gpus.size());
      cells_[Index(p, e)].left = data.environments()[static_cast<size_t>(e)].cudnn < gpu.newest;
    }
    cards += std::get<bool>(key) ? 0 : 1;
    ReportGpu& made = gpus.emplace_back();
    std::tie(made.node, made.gpu_uuid, made.gpu_model) =
        std::tie(std::get<0>(key), std::get<1>(key), std::get<2>(key));
  }
}

ReportAnalysis::Pair ReportAnalysis::Order(Rows rows) {
  const auto before = [this](const ReportRow& x, const ReportRow& y) {
    return std::pair(GpuOf(x), y.tune_time_us) < std::pair(GpuOf(y), x.tune_time_us);
  };
  // Those of most sources are in order.
  if (!std::is_sorted(rows.begin(), rows.end(), before)) {
    std::stable_sort(rows.begin(), rows.end(), before);
  }
  std::vector<ReportRow> older;
  size_t kept = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (kept > 0 && GpuOf(rows[kept - 1]) == GpuOf(rows[i])) {
      older.push_back(std::move(rows[i]));
    } else if (kept++ != i) {
      rows[kept - 1] = std::move(rows[i]);
    }
  }
  std::move(older.begin(), older.end(), rows.begin() + static_cast<ptrdiff_t>(kept));
  Pair pair{rows[0].environment, rows[0].problem, rows.first(kept), {}, rows.subspan(kept)};
  const auto timed = [](const ReportRow& row) { return row.timed(); };
  auto end = std::find_if_not(pair.newest.begin(), pair.newest.end(), timed);
  if (end != pair.newest.end()) {
    end = std::stable_partition(pair.newest.begin(), pair.newest.end(), timed);
  }
  pair.timed = {pair.newest.begin(), end};
  return pair;
}

void ReportAnalysis::RateGpus(std::vector<Sums> sums) {
  std::map<std::string, std::vector<double>> clocks;  // by model
  for (size_t g = 0; g < gpus.size(); ++g) {
    ReportGpu& gpu = gpus[g];
    gpu.compared = static_cast<int>(sums[g].ratios.size());
    if (gpu.compared >= kLeastProblems) {
      gpu.ratio = Median(std::move(sums[g].ratios));
      gpu.slow = gpu.ratio >= kSlowRatio;
    }
    if (sums[g].known > 0) gpu.throttled = static_cast<double>(sums[g].throttled) / sums[g].known;
    if (sums[g].clocks.empty()) continue;
    gpu.clock_mhz = Median(std::move(sums[g].clocks));
    clocks[gpu.gpu_model].push_back(gpu.clock_mhz);
  }
  std::map<std::string, double> medians;
  for (auto& [model, values] : clocks) medians[model] = Median(std::move(values));
  for (ReportGpu& gpu : gpus) gpu.model_clock_mhz = medians[gpu.gpu_model];
}

ReportAnalysis::ReportAnalysis(const ReportOptions& options, ReportData* of)
    : data(*of), oldest_us_(absl::ToUnixMicros(options.now - options.stale_after)) {
  cells_.resize(data.places().size() * data.environments().size());
  for (const auto& [key, rows] : data.pairs()) {
    for (const ReportRow& row : rows) {
      Cell& cell = cells_[Index(row.place, row.environment)];
      cell.seen = true;
      cell.timed |= row.timed();
    }
  }
  NumberGpus();
  std::vector<Sums> sums(gpus.size());
  std::vector<double> times;
  for (auto& [key, rows] : of->pairs()) {
    if (rows.empty()) continue;
    for (const ReportRow& row : rows) {
      Sums& gpu = sums[static_cast<size_t>(GpuOf(row))];
      if (row.throttled) ++gpu.known;
      if (row.throttled.value_or(false)) ++gpu.throttled;
      if (row.timed() && row.sm_clock_mhz > 0) gpu.clocks.push_back(row.sm_clock_mhz);
    }
    const Pair& pair = pairs.emplace_back(Order(rows));
    if (pair.timed.size() < kLeastGpus) continue;
    times.clear();
    for (const ReportRow& row : pair.timed) times.push_back(row.winner_us());
    const double median = Median(times);
    for (const ReportRow& row : pair.timed) {
      sums[static_cast<size_t>(GpuOf(row))].ratios.push_back(row.winner_us() / median);
    }
  }
  RateGpus(std::move(sums));
}

const ReportAnalysis::Pair* ReportAnalysis::Find(int environment, int problem) const {
  const auto found = std::lower_bound(pairs.begin(), pairs.end(), std::pair(environment, problem),
                                      [](const Pair& pair, const auto& key) {
                                        return std::pair(pair.environment, pair.problem) < key;
                                      });
  const bool is_there =
      found != pairs.end() && found->environment == environment && found->problem == problem;
  return is_there ? &*found : nullptr;
}

double UncertaintyOf(std::vector<double> values, double median, double alone) {
  if (values.size() < kLeastGpus) return alone;
  const double root = std::sqrt(static_cast<double>(values.size()));
  const bool few = values.size() < kFew;
  for (double& value : values) value = std::abs(value - median);
  const double error = kDeviationOfMad * Median(std::move(values)) * kMedianError / root;
  return std::max(few ? alone : 0, kSigmas * error / median);
}

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

CommonChoice ChooseCommon(std::span<const ReportRow> rows, const std::vector<std::string>& texts) {
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
  double least = 1 / (1 + kLeastChange);
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
    const double ratio = Median(std::move(ratios));
    const auto text = [&](int c) { return texts[static_cast<size_t>(c)]; };
    if (ratio < least || (ratio == least && common.winner != common.settled &&
                          text(candidate) < text(common.winner))) {
      least = ratio;
      common.winner = candidate;
    }
  }
  return common;
}

namespace {

// Pairs, what nodes disagree on, which rows are stale, and the headline's numbers of rows.
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
    const CommonChoice common = ChooseCommon(of.newest, a.data.candidates());
    pair.winner = common.winner;
    pair.stock = common.stock;
    pair.winner_us = Pooled(a, of, pair.winner);
    pair.stock_us = pair.stock == pair.winner ? pair.winner_us : Pooled(a, of, pair.stock);
    if (pair.timed_nodes < 2) continue;
    ReportDisagreement found = FindDisagreement(of, pair.winner);
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
  headline.hit_ratio = data->hit_ratio();
  return report;
}

}  // namespace convtune::report

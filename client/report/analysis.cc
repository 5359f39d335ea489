#include "client/report/analysis.h"

#include <algorithm>
#include <cmath>

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
      gpu.ratio = MedianOf(std::move(sums[g].ratios));
      gpu.slow = gpu.ratio >= options.slow_ratio;
    }
    if (sums[g].known > 0) gpu.throttled = static_cast<double>(sums[g].throttled) / sums[g].known;
    if (sums[g].clocks.empty()) continue;
    gpu.clock_mhz = MedianOf(std::move(sums[g].clocks));
    clocks[gpu.gpu_model].push_back(gpu.clock_mhz);
  }
  std::map<std::string, double> medians;
  for (auto& [model, values] : clocks) medians[model] = MedianOf(std::move(values));
  for (ReportGpu& gpu : gpus) gpu.model_clock_mhz = medians[gpu.gpu_model];
}

ReportAnalysis::ReportAnalysis(const ReportOptions& with, ReportData* of)
    : options(with), data(*of), oldest_us_(absl::ToUnixMicros(with.now - with.stale_after)) {
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
    const double median = MedianOf(times);
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

double MedianOf(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*std::max_element(values.begin(), middle) + *middle) / 2;
}

double UncertaintyOf(std::vector<double> values, double median, double alone) {
  if (values.size() < kLeastGpus) return alone;
  const double root = std::sqrt(static_cast<double>(values.size()));
  const bool few = values.size() < kFew;
  for (double& value : values) value = std::abs(value - median);
  const double error = kDeviationOfMad * MedianOf(std::move(values)) * kMedianError / root;
  return std::max(few ? alone : 0, kSigmas * error / median);
}

}  // namespace convtune::report

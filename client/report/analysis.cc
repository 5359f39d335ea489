#include "client/report/analysis.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>
#include <tuple>

namespace convtune {
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

using Hardware = std::tuple<std::string, int, std::string, bool>;

Hardware HardwareOf(const Environment& e) {
  return {e.gpu_model, e.sm_count, e.mig_profile, e.profile};
}

auto VersionOf(const Environment& e) {
  return std::tuple(e.cudnn.major, e.cudnn.minor, e.cudnn.patch);
}

void NumberGpus(ReportAnalysis* a) {
  std::map<std::tuple<std::string, std::string, Hardware>, int> numbers;
  for (const ReportRow& row : a->data.rows()) {
    const ReportPlace& place = a->data.places()[static_cast<size_t>(row.place)];
    const Environment& environment = a->EnvironmentOf(row);
    const auto [found, is_new] =
        numbers.emplace(std::tuple(place.node, place.gpu_uuid, HardwareOf(environment)),
                        static_cast<int>(a->gpus.size()));
    if (is_new) {
      ReportGpu gpu;
      gpu.node = place.node;
      gpu.gpu_uuid = place.gpu_uuid;
      gpu.gpu_model = environment.gpu_model;
      a->gpus.push_back(gpu);
    }
    a->gpu_of_row.push_back(found->second);
  }
}

void GroupRows(ReportAnalysis* a) {
  const std::vector<ReportRow>& rows = a->data.rows();
  std::vector<int> order(rows.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(i);
  const auto key = [&](int i) {
    const ReportRow& row = rows[static_cast<size_t>(i)];
    return std::tuple(row.environment, row.problem, a->gpu_of_row[static_cast<size_t>(i)],
                      -absl::ToUnixMicros(row.tune_time));
  };
  std::sort(order.begin(), order.end(), [&](int x, int y) { return key(x) < key(y); });
  for (const int i : order) {
    const ReportRow& row = rows[static_cast<size_t>(i)];
    if (!a->groups.empty()) {
      const int last = a->groups.back().back();
      const ReportRow& before = rows[static_cast<size_t>(last)];
      if (before.environment == row.environment && before.problem == row.problem) {
        // An older one of the same GPU, as from before a driver's upgrade.
        if (a->gpu_of_row[static_cast<size_t>(last)] == a->gpu_of_row[static_cast<size_t>(i)]) {
          continue;
        }
        a->groups.back().push_back(i);
        continue;
      }
    }
    a->groups.push_back({i});
  }
  for (std::vector<int>& group : a->groups) {
    std::stable_partition(group.begin(), group.end(),
                          [&](int i) { return rows[static_cast<size_t>(i)].timed(); });
  }
}

void CompareGpus(ReportAnalysis* a) {
  const std::vector<ReportRow>& rows = a->data.rows();
  std::vector<std::vector<double>> ratios(a->gpus.size());
  for (const std::vector<int>& group : a->groups) {
    std::vector<double> times;
    for (const int i : group) {
      const ReportRow& row = rows[static_cast<size_t>(i)];
      if (row.timed()) times.push_back(row.times.front().median_us);
    }
    if (times.size() < kLeastGpus) continue;
    const size_t timed = times.size();
    const double median = MedianOf(&times);
    for (size_t k = 0; k < timed; ++k) {
      const auto i = static_cast<size_t>(group[k]);
      ratios[static_cast<size_t>(a->gpu_of_row[i])].push_back(rows[i].times.front().median_us /
                                                              median);
    }
  }
  for (size_t g = 0; g < ratios.size(); ++g) {
    a->gpus[g].compared = static_cast<int>(ratios[g].size());
    if (a->gpus[g].compared < kLeastProblems) continue;
    a->gpus[g].ratio = MedianOf(&ratios[g]);
    a->gpus[g].slow = a->gpus[g].ratio >= a->options.slow_ratio;
  }
}

void AddClocks(ReportAnalysis* a) {
  std::vector<std::vector<double>> clocks(a->gpus.size());
  std::map<std::string, std::vector<double>> of_model;
  std::vector<int> known(a->gpus.size());
  std::vector<int> throttled(a->gpus.size());
  for (size_t i = 0; i < a->data.rows().size(); ++i) {
    const ReportRow& row = a->data.rows()[i];
    const auto gpu = static_cast<size_t>(a->gpu_of_row[i]);
    if (row.timed() && row.sm_clock_mhz > 0) {
      clocks[gpu].push_back(row.sm_clock_mhz);
      of_model[a->gpus[gpu].gpu_model].push_back(row.sm_clock_mhz);
    }
    if (row.throttled) {
      ++known[gpu];
      throttled[gpu] += *row.throttled ? 1 : 0;
    }
  }
  std::map<std::string, double> medians;
  for (auto& [model, values] : of_model) medians[model] = MedianOf(&values);
  for (size_t g = 0; g < a->gpus.size(); ++g) {
    ReportGpu& gpu = a->gpus[g];
    if (!clocks[g].empty()) gpu.clock_mhz = MedianOf(&clocks[g]);
    gpu.model_clock_mhz = medians[gpu.gpu_model];
    if (known[g] > 0) gpu.throttled = static_cast<double>(throttled[g]) / known[g];
  }
}

void FindStale(ReportAnalysis* a) {
  using Version = decltype(VersionOf(Environment()));
  std::vector<Version> newest(a->gpus.size(), Version());
  for (size_t i = 0; i < a->data.rows().size(); ++i) {
    Version& version = newest[static_cast<size_t>(a->gpu_of_row[i])];
    version = std::max(version, VersionOf(a->EnvironmentOf(a->data.rows()[i])));
  }
  for (size_t i = 0; i < a->data.rows().size(); ++i) {
    const ReportRow& row = a->data.rows()[i];
    a->stale_row.push_back(a->options.now - row.tune_time > a->options.stale_after ||
                           VersionOf(a->EnvironmentOf(row)) <
                               newest[static_cast<size_t>(a->gpu_of_row[i])]);
  }
}

}  // namespace

ReportAnalysis::ReportAnalysis(const ReportData& of, const ReportOptions& with)
    : data(of), options(with) {
  NumberGpus(this);
  GroupRows(this);
  CompareGpus(this);
  AddClocks(this);
  FindStale(this);
}

double MedianOf(std::vector<double>* values) {
  const size_t middle = values->size() / 2;
  const auto place = values->begin() + static_cast<ptrdiff_t>(middle);
  std::nth_element(values->begin(), place, values->end());
  if (values->size() % 2 == 1) return *place;
  return (*place + *std::max_element(values->begin(), place)) / 2;
}

double UncertaintyOf(std::vector<double> values, double alone) {
  if (values.size() < kLeastGpus) return alone;
  const bool few = values.size() < kFew;
  const double median = MedianOf(&values);
  for (double& value : values) value = std::abs(value - median);
  const double error = kDeviationOfMad * MedianOf(&values) * kMedianError /
                       std::sqrt(static_cast<double>(values.size()));
  return std::max(few ? alone : 0, kSigmas * error / median);
}

bool VersionBefore(const std::string& a, const std::string& b) {
  const auto numbers = [](const std::string& text) {
    std::vector<int64_t> parts(1, 0);
    for (const char c : text) {
      if (c == '.') {
        parts.push_back(0);
      } else if (std::isdigit(static_cast<unsigned char>(c)) != 0 && parts.back() < 1'000'000'000) {
        parts.back() = parts.back() * 10 + (c - '0');
      }
    }
    return parts;
  };
  return std::pair(numbers(a), a) < std::pair(numbers(b), b);
}

}  // namespace convtune

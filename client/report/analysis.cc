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

// In an order that does not depend on that of the rows, so that numbers that
// depend on an order are the same from every source.
void NumberGpus(ReportAnalysis* a) {
  const std::vector<Environment>& environments = a->data.environments();
  const std::vector<ReportPlace>& places = a->data.places();
  std::map<Hardware, size_t> hardware_numbers;
  std::vector<size_t> hardware;  // of each environment
  for (const Environment& environment : environments) {
    hardware.push_back(
        hardware_numbers.emplace(HardwareOf(environment), hardware_numbers.size()).first->second);
  }
  const auto cell = [&](const ReportRow& row) {
    return static_cast<size_t>(row.place) * hardware_numbers.size() +
           hardware[static_cast<size_t>(row.environment)];
  };
  // By place and hardware: an environment that says which, or -1.
  std::vector<int> seen(places.size() * hardware_numbers.size(), -1);
  for (const ReportRow& row : a->data.rows()) seen[cell(row)] = row.environment;
  std::map<std::tuple<std::string, std::string, Hardware>, std::vector<size_t>> cells;
  for (size_t i = 0; i < seen.size(); ++i) {
    if (seen[i] < 0) continue;
    const ReportPlace& place = places[i / hardware_numbers.size()];
    cells[{place.node, place.gpu_uuid, HardwareOf(environments[static_cast<size_t>(seen[i])])}]
        .push_back(i);
  }
  std::vector<int> numbers(seen.size(), -1);
  for (const auto& [key, of_gpu] : cells) {
    for (const size_t i : of_gpu) numbers[i] = static_cast<int>(a->gpus.size());
    ReportGpu gpu;
    gpu.node = std::get<0>(key);
    gpu.gpu_uuid = std::get<1>(key);
    gpu.gpu_model = std::get<0>(std::get<2>(key));
    a->gpus.push_back(gpu);
  }
  a->gpu_of_row.reserve(a->data.rows().size());
  for (const ReportRow& row : a->data.rows()) a->gpu_of_row.push_back(numbers[cell(row)]);
}

// Rows by (environment, problem), each with a number of its own.
std::vector<ReportAnalysis::Group> RowsByKey(const ReportAnalysis& a) {
  const std::vector<ReportRow>& rows = a.data.rows();
  const size_t problems = a.data.problems().size();
  const auto key = [&](const ReportRow& row) {
    return static_cast<size_t>(row.environment) * problems + static_cast<size_t>(row.problem);
  };
  std::vector<int> counts(a.data.environments().size() * problems);
  for (const ReportRow& row : rows) ++counts[key(row)];
  std::vector<int> numbers(counts.size(), -1);
  std::vector<ReportAnalysis::Group> groups;
  for (size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] == 0) continue;
    numbers[i] = static_cast<int>(groups.size());
    groups.emplace_back().reserve(static_cast<size_t>(counts[i]));
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    groups[static_cast<size_t>(numbers[key(rows[i])])].push_back(static_cast<int>(i));
  }
  return groups;
}

void GroupRows(ReportAnalysis* a) {
  a->groups = RowsByKey(*a);
  for (size_t g = 0; g < a->groups.size(); ++g) {
    ReportAnalysis::Group& group = a->groups[g];
    const auto before = [&](int x, int y) {
      if (a->GpuOf(x) != a->GpuOf(y)) return a->GpuOf(x) < a->GpuOf(y);
      return a->Row(x).tune_time > a->Row(y).tune_time;
    };
    if (!std::is_sorted(group.begin(), group.end(), before)) {
      std::stable_sort(group.begin(), group.end(), before);
    }
    size_t kept = 0;
    for (const int i : group) {
      if (kept > 0 && a->GpuOf(group[kept - 1]) == a->GpuOf(i)) {
        a->older[g].push_back(i);
      } else {
        group[kept++] = i;
      }
    }
    group.resize(kept);
    std::stable_partition(group.begin(), group.end(), [&](int i) { return a->Row(i).timed(); });
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
  std::map<std::string, size_t> model_numbers;
  std::vector<size_t> model_of;
  for (const ReportGpu& gpu : a->gpus) {
    model_of.push_back(model_numbers.emplace(gpu.gpu_model, model_numbers.size()).first->second);
  }
  std::vector<std::vector<double>> of_model(model_numbers.size());
  std::vector<int> known(a->gpus.size());
  std::vector<int> throttled(a->gpus.size());
  for (size_t i = 0; i < a->data.rows().size(); ++i) {
    const ReportRow& row = a->data.rows()[i];
    const auto gpu = static_cast<size_t>(a->gpu_of_row[i]);
    if (row.timed() && row.sm_clock_mhz > 0) {
      clocks[gpu].push_back(row.sm_clock_mhz);
      of_model[model_of[gpu]].push_back(row.sm_clock_mhz);
    }
    if (row.throttled) {
      ++known[gpu];
      throttled[gpu] += *row.throttled ? 1 : 0;
    }
  }
  std::vector<double> medians;
  for (std::vector<double>& values : of_model) {
    medians.push_back(values.empty() ? 0 : MedianOf(&values));
  }
  for (size_t g = 0; g < a->gpus.size(); ++g) {
    ReportGpu& gpu = a->gpus[g];
    if (!clocks[g].empty()) gpu.clock_mhz = MedianOf(&clocks[g]);
    gpu.model_clock_mhz = medians[model_of[g]];
    if (known[g] > 0) gpu.throttled = static_cast<double>(throttled[g]) / known[g];
  }
}

void FindStale(ReportAnalysis* a) {
  using Version = decltype(VersionOf(Environment()));
  std::vector<Version> versions;
  for (const Environment& environment : a->data.environments()) {
    versions.push_back(VersionOf(environment));
  }
  const std::vector<ReportRow>& rows = a->data.rows();
  std::vector<Version> newest(a->gpus.size(), Version());
  for (size_t i = 0; i < rows.size(); ++i) {
    Version& version = newest[static_cast<size_t>(a->gpu_of_row[i])];
    version = std::max(version, versions[static_cast<size_t>(rows[i].environment)]);
  }
  const absl::Time oldest = a->options.now - a->options.stale_after;
  a->stale_row.reserve(rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    a->stale_row.push_back(rows[i].tune_time < oldest ||
                           versions[static_cast<size_t>(rows[i].environment)] <
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

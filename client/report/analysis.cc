#include "client/report/analysis.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>
#include <set>
#include <tuple>
#include <utility>

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

using Hardware = std::tuple<std::string, int, std::string, bool>;

Hardware HardwareOf(const Environment& e) {
  return {e.gpu_model, e.sm_count, e.mig_profile, e.profile || e.simulated()};
}

auto VersionOf(const Environment& e) {
  return std::tuple(e.cudnn.major, e.cudnn.minor, e.cudnn.patch);
}

// The places of values among the different ones, in their order.
template <typename Value>
std::vector<int> Ranks(const std::vector<Value>& values) {
  std::map<Value, int> ranks;
  for (const Value& value : values) ranks.emplace(value, 0);
  int next = 0;
  for (auto& [value, rank] : ranks) rank = next++;
  std::vector<int> all;
  for (const Value& value : values) all.push_back(ranks.at(value));
  return all;
}

template <typename Value>
void Append(const std::vector<Value>& more, std::vector<Value>* all) {
  all->insert(all->end(), more.begin(), more.end());
}

}  // namespace

// What one worker has seen of each GPU.
struct ReportAnalysis::Sums {
  struct Gpu {
    std::vector<double> ratios;
    std::vector<float> clocks;
    int rows = 0;
    int known = 0;  // of them, whether the GPU was throttled
    int throttled = 0;
    int newest = -1;
  };
  std::vector<Gpu> gpus;
  std::vector<char> timed_at;
  std::vector<std::pair<size_t, std::vector<int>>> older;
};

// In an order that does not depend on that of the rows, so that numbers that
// depend on an order are the same from every source.
void ReportAnalysis::NumberGpus() {
  std::vector<std::pair<std::string, std::string>> places;
  for (const ReportPlace& place : data.places()) places.emplace_back(place.node, place.gpu_uuid);
  std::vector<Hardware> hardware;
  std::vector<decltype(VersionOf(Environment()))> versions;
  for (const Environment& environment : data.environments()) {
    hardware.push_back(HardwareOf(environment));
    versions.push_back(VersionOf(environment));
  }
  hardware_of_environment_ = Ranks(hardware);
  versions_ = Ranks(versions);
  const std::set<Hardware> kinds(hardware.begin(), hardware.end());
  for (const Hardware& kind : kinds) no_cards_.push_back(std::get<3>(kind));
  gpu_of_place_ = Ranks(places);
  for (int& place : gpu_of_place_) place *= static_cast<int>(kinds.size());
  const std::set<std::pair<std::string, std::string>> known(places.begin(), places.end());
  for (const auto& [node, uuid] : known) {
    for (const Hardware& kind : kinds) {
      ReportGpu gpu;
      gpu.node = node;
      gpu.gpu_uuid = uuid;
      gpu.gpu_model = std::get<0>(kind);
      gpus.push_back(gpu);
    }
  }
}

// Rows by (environment, problem), each with a number of its own. Most sources
// have the rows of a key together already.
void ReportAnalysis::GroupRows() {
  const std::vector<ReportRow>& rows = data.rows();
  const size_t problems = data.problems().size();
  const std::vector<size_t>& runs = data.runs();
  const auto key_of = [&](size_t run) {
    const ReportRow& row = rows[runs[run]];
    return static_cast<size_t>(row.environment) * problems + static_cast<size_t>(row.problem);
  };
  const auto end_of = [&](size_t run) {
    return run + 1 < runs.size() ? runs[run + 1] : rows.size();
  };
  std::vector<size_t> counts(data.environments().size() * problems);
  for (size_t run = 0; run < runs.size(); ++run) counts[key_of(run)] += end_of(run) - runs[run];
  order_.resize(rows.size());
  std::vector<size_t> next(counts.size());
  size_t begin = 0;
  for (size_t key = 0; key < counts.size(); ++key) {
    next[key] = begin;
    if (counts[key] > 0) groups.emplace_back(order_.data() + begin, counts[key]);
    begin += counts[key];
  }
  for (size_t run = 0; run < runs.size(); ++run) {
    size_t& to = next[key_of(run)];
    for (size_t i = runs[run]; i < end_of(run); ++i) order_[to++] = static_cast<int>(i);
  }
}

void ReportAnalysis::ReadGroup(size_t g, Sums* sums) {
  int* const rows = order_.data() + (groups[g].data() - order_.data());
  int* const end = rows + groups[g].size();
  const auto before = [&](int x, int y) {
    if (GpuOf(x) != GpuOf(y)) return GpuOf(x) < GpuOf(y);
    return Row(x).tune_time_us > Row(y).tune_time_us;
  };
  if (!std::is_sorted(rows, end, before)) std::stable_sort(rows, end, before);
  const size_t environments = data.environments().size();
  std::vector<double> times;
  std::vector<int> replaced;
  int* kept = rows;
  for (const int* i = rows; i != end; ++i) {
    const ReportRow& row = Row(*i);
    Sums::Gpu& gpu = sums->gpus[static_cast<size_t>(GpuOf(row))];
    ++gpu.rows;
    gpu.newest = std::max(gpu.newest, versions_[static_cast<size_t>(row.environment)]);
    if (row.throttled) {
      ++gpu.known;
      gpu.throttled += *row.throttled ? 1 : 0;
    }
    if (row.timed()) {
      if (row.sm_clock_mhz > 0) gpu.clocks.push_back(row.sm_clock_mhz);
      sums->timed_at[static_cast<size_t>(row.place) * environments +
                     static_cast<size_t>(row.environment)] = 1;
    }
    if (kept != rows && GpuOf(kept[-1]) == GpuOf(row)) {
      replaced.push_back(*i);
      continue;
    }
    if (row.timed()) times.push_back(row.times.front().median_us);
    *kept++ = *i;
  }
  if (!replaced.empty()) sums->older.emplace_back(g, std::move(replaced));
  groups[g] = {rows, kept};
  timed_counts[g] = times.size();
  if (times.size() < groups[g].size()) {
    std::stable_partition(rows, kept, [&](int i) { return Row(i).timed(); });
  }
  if (times.size() < kLeastGpus) return;
  const double median = MedianOf(&times);
  for (const int i : groups[g].first(timed_counts[g])) {
    const ReportRow& row = Row(i);
    sums->gpus[static_cast<size_t>(GpuOf(row))].ratios.push_back(row.times.front().median_us /
                                                                 median);
  }
}

void ReportAnalysis::RateGpus(std::vector<Sums>* sums) {
  std::vector<std::string> models;
  for (const ReportGpu& gpu : gpus) models.push_back(gpu.gpu_model);
  const std::vector<int> model_of = Ranks(models);
  std::vector<std::vector<double>> of_model(
      gpus.empty() ? 0 : std::set<std::string>(models.begin(), models.end()).size());
  ratios_.assign(gpus.size(), 1);
  newest_.assign(gpus.size(), -1);
  rows_of_gpu_.assign(gpus.size(), 0);
  for (size_t g = 0; g < gpus.size(); ++g) {
    Sums::Gpu all = std::move(sums->front().gpus[g]);
    for (size_t worker = 1; worker < sums->size(); ++worker) {
      const Sums::Gpu& more = (*sums)[worker].gpus[g];
      Append(more.ratios, &all.ratios);
      Append(more.clocks, &all.clocks);
      all.rows += more.rows;
      all.known += more.known;
      all.throttled += more.throttled;
      all.newest = std::max(all.newest, more.newest);
    }
    ReportGpu& gpu = gpus[g];
    newest_[g] = all.newest;
    rows_of_gpu_[g] = all.rows;
    gpu.compared = static_cast<int>(all.ratios.size());
    if (gpu.compared >= kLeastProblems) {
      gpu.ratio = ratios_[g] = MedianOf(&all.ratios);
      gpu.slow = gpu.ratio >= options.slow_ratio;
    }
    if (all.known > 0) gpu.throttled = static_cast<double>(all.throttled) / all.known;
    if (all.clocks.empty()) continue;
    gpu.clock_mhz = MedianOf(&all.clocks);
    of_model[static_cast<size_t>(model_of[g])].push_back(gpu.clock_mhz);
  }
  std::vector<double> medians;
  for (std::vector<double>& clocks : of_model) {
    medians.push_back(clocks.empty() ? 0 : MedianOf(&clocks));
  }
  for (size_t g = 0; g < gpus.size(); ++g) {
    gpus[g].model_clock_mhz = medians[static_cast<size_t>(model_of[g])];
  }
}

ReportAnalysis::ReportAnalysis(const ReportData& of, const ReportOptions& with)
    : data(of),
      options(with),
      workers(WorkersFor(of.rows().size())),
      oldest_us_(absl::ToUnixMicros(with.now - with.stale_after)) {
  NumberGpus();
  GroupRows();
  timed_counts.resize(groups.size());
  std::vector<Sums> sums(workers);
  for (Sums& each : sums) {
    each.gpus.resize(gpus.size());
    each.timed_at.resize(data.places().size() * data.environments().size());
  }
  InParallel(workers, groups.size(), [&](size_t worker, size_t begin, size_t end) {
    for (size_t g = begin; g < end; ++g) ReadGroup(g, &sums[worker]);
  });
  timed_at_ = sums.front().timed_at;
  for (Sums& each : sums) {
    for (size_t i = 0; i < timed_at_.size(); ++i) timed_at_[i] |= each.timed_at[i];
    for (auto& [group, rows] : each.older) older[group] = std::move(rows);
  }
  RateGpus(&sums);
}

namespace {

// Puts the value of that rank in its place, smaller ones before it. By Hoare's
// selection with a partition that has no branch to mispredict (Lomuto's): of values
// that are near each other it takes a third of std::nth_element's time.
template <typename Number>
void Select(Number* values, size_t count, size_t rank) {
  size_t begin = 0;
  size_t end = count;
  const auto partition = [&](size_t from, const auto& goes_first) {
    size_t place = from;
    for (size_t i = from; i < end; ++i) {
      const Number value = values[i];
      values[i] = values[place];
      values[place] = value;
      place += goes_first(value) ? 1 : 0;
    }
    return place;
  };
  for (int rounds = 0; end - begin > 1; ++rounds) {
    if (rounds == 64) {  // someone has chosen the values so
      std::nth_element(values + begin, values + rank, values + end);
      return;
    }
    const Number a = values[begin];
    const Number b = values[begin + (end - begin) / 2];
    const Number c = values[end - 1];
    const Number pivot = std::max(std::min(a, b), std::min(std::max(a, b), c));
    const size_t less = partition(begin, [pivot](Number value) { return value < pivot; });
    if (rank < less) {
      end = less;
      continue;
    }
    // Equal ones are in their place.
    begin = partition(less, [pivot](Number value) { return value <= pivot; });
    if (rank < begin) return;
  }
}

template <typename Number>
double Median(std::vector<Number>* values) {
  const size_t middle = values->size() / 2;
  Select(values->data(), values->size(), middle);
  const Number upper = (*values)[middle];
  if (values->size() % 2 == 1) return upper;
  Number lower = (*values)[0];
  for (size_t i = 1; i < middle; ++i) lower = std::max(lower, (*values)[i]);
  return (static_cast<double>(lower) + upper) / 2;
}

}  // namespace

double MedianOf(std::vector<double>* values) { return Median(values); }
double MedianOf(std::vector<float>* values) { return Median(values); }

double UncertaintyOf(std::vector<double> values, double median, double alone) {
  if (values.size() < kLeastGpus) return alone;
  const bool few = values.size() < kFew;
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

}  // namespace convtune::report

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/report/analysis.h"

namespace convtune {
namespace {

// Timed rows of one problem before an upgrade, or after it.
using Rows = std::vector<int>;
// By problem.
using Side = std::map<int, Rows>;

struct VersionOrder {
  bool operator()(const std::string& a, const std::string& b) const { return VersionBefore(a, b); }
};

// Drivers of places, numbered in the order of their texts.
struct Drivers {
  explicit Drivers(const std::vector<ReportPlace>& places) {
    std::map<std::string, size_t> numbers;
    for (const ReportPlace& place : places) numbers.emplace(place.driver, 0);
    for (auto& [name, number] : numbers) {
      number = names.size();
      names.push_back(name);
    }
    for (const ReportPlace& place : places) of_place.push_back(numbers[place.driver]);
  }
  size_t Of(const ReportRow& row) const { return of_place[static_cast<size_t>(row.place)]; }

  std::vector<std::string> names;
  std::vector<size_t> of_place;
};

class Comparison {
 public:
  Comparison(const ReportAnalysis& analysis, const Drivers& drivers)
      : a_(analysis), drivers_(drivers) {}

  // `one_driver`: where some problem was timed by one driver on both sides, only
  // such rows are compared, so that a driver's effect is not taken for cuDNN's.
  ReportUpgrade Compare(const Side& before, const Side& after, bool one_driver) const {
    ReportUpgrade upgrade;
    std::vector<std::tuple<int, Rows, Rows>> same;
    std::vector<std::tuple<int, Rows, Rows>> any;
    for (const auto& [problem, rows] : before) {
      const auto found = after.find(problem);
      if (found == after.end()) continue;
      any.emplace_back(problem, rows, found->second);
      if (!one_driver) continue;
      auto [from, to] = OfOneDriver(rows, found->second);
      if (!from.empty()) same.emplace_back(problem, std::move(from), std::move(to));
    }
    double logs = 0;
    for (const auto& [problem, from, to] : same.empty() ? any : same) {
      const ReportUpgrade::Point point = ComparePoint(problem, from, to);
      logs += std::log(point.to_us / point.from_us);
      if (point.beyond_noise) {
        ++(point.to_us > point.from_us ? upgrade.regressions : upgrade.improvements);
      }
      upgrade.points.push_back(point);
    }
    if (!upgrade.points.empty()) {
      upgrade.ratio = std::exp(logs / static_cast<double>(upgrade.points.size()));
    }
    std::stable_sort(
        upgrade.points.begin(), upgrade.points.end(),
        [](const auto& x, const auto& y) { return x.to_us - x.from_us > y.to_us - y.from_us; });
    return upgrade;
  }

 private:
  const ReportRow& Row(int i) const { return a_.data.rows()[static_cast<size_t>(i)]; }

  // The rows of the driver that has most on its poorer side; empty if none has both.
  std::pair<Rows, Rows> OfOneDriver(const Rows& before, const Rows& after) const {
    std::vector<std::pair<Rows, Rows>> by_driver(drivers_.names.size());
    for (const int i : before) by_driver[drivers_.Of(Row(i))].first.push_back(i);
    for (const int i : after) by_driver[drivers_.Of(Row(i))].second.push_back(i);
    std::pair<Rows, Rows>* best = nullptr;
    const auto poorer = [](const auto& sides) {
      return std::min(sides.first.size(), sides.second.size());
    };
    for (auto& sides : by_driver) {
      if (best == nullptr || poorer(sides) > poorer(*best)) best = &sides;
    }
    return best == nullptr || poorer(*best) == 0 ? std::pair<Rows, Rows>() : std::move(*best);
  }

  std::vector<double> Times(const Rows& rows) const {
    std::vector<double> times;
    for (const int i : rows) times.push_back(a_.WinnerAtModelSpeed(i));
    return times;
  }

  // Half the widest interval of them, relative.
  double Alone(const Rows& rows) const {
    double widest = 0;
    for (const int i : rows) {
      const ReportTime& time = Row(i).times.front();
      widest =
          std::max(widest, static_cast<double>(time.high_us - time.low_us) / (2 * time.median_us));
    }
    return widest;
  }

  // After over before of each GPU that has both. Rows are in the order of the GPUs.
  std::vector<double> PairedRatios(const Rows& before, const Rows& after) const {
    std::vector<double> ratios;
    auto from = before.begin();
    for (const int i : after) {
      while (from != before.end() && a_.GpuOf(*from) < a_.GpuOf(i)) ++from;
      if (from == before.end()) break;
      if (a_.GpuOf(*from) == a_.GpuOf(i)) {
        ratios.push_back(a_.WinnerAtModelSpeed(i) / a_.WinnerAtModelSpeed(*from));
      }
    }
    return ratios;
  }

  ReportUpgrade::Point ComparePoint(int problem, const Rows& before, const Rows& after) const {
    ReportUpgrade::Point point;
    point.problem = problem;
    point.environment = Row(after[0]).environment;
    point.from_winner = Winner(before);
    point.to_winner = Winner(after);
    std::vector<double> from = Times(before);
    std::vector<double> to = Times(after);
    std::vector<double> ratios = PairedRatios(before, after);
    const double alone = Alone(before) + Alone(after);
    double noise = 0;
    if (ratios.empty()) {
      noise = UncertaintyOf(from, Alone(before)) + UncertaintyOf(to, Alone(after));
      point.from_us = MedianOf(&from);
      point.to_us = MedianOf(&to);
    } else {
      // The same cards before and after: what differs between cards is out.
      noise = UncertaintyOf(ratios, alone);
      point.from_us = MedianOf(&from);
      point.to_us = point.from_us * MedianOf(&ratios);
    }
    point.beyond_noise = std::abs(std::log(point.to_us / point.from_us)) >
                         std::log1p(a_.options.least_change) + noise;
    return point;
  }

  int Winner(const Rows& rows) const {
    std::vector<int> winners;
    for (const int i : rows) winners.push_back(Row(i).winner);
    return MostFrequent(winners, a_.data.candidates());
  }

  const ReportAnalysis& a_;
  const Drivers& drivers_;
};

std::string CudnnText(const Environment& e) {
  return absl::StrCat(e.cudnn.major, ".", e.cudnn.minor, ".", e.cudnn.patch);
}

// The environment without its cuDNN version.
std::string WithoutCudnn(Environment e) {
  e.cudnn = {};
  std::string text = e.ToText();
  const size_t begin = text.find(",cudnn=");
  const size_t end = text.find(',', begin + 1);
  return begin == std::string::npos ? text : text.erase(begin, end - begin);
}

}  // namespace

void AddUpgrades(const ReportAnalysis& analysis, Report* report) {
  using Sides = std::map<std::string, Side, VersionOrder>;  // by version
  const Drivers drivers(analysis.data.places());
  std::map<std::string, Sides> by_cudnn;
  std::map<std::string, Sides> by_driver;
  // Of each environment.
  std::vector<Side*> cudnn_sides;
  std::vector<std::vector<Side*>> driver_sides;
  for (const Environment& e : analysis.data.environments()) {
    cudnn_sides.push_back(&by_cudnn[WithoutCudnn(e)][CudnnText(e)]);
    Sides& sides = by_driver[e.ToText()];
    std::vector<Side*>& of_drivers = driver_sides.emplace_back();
    for (const std::string& name : drivers.names) {
      of_drivers.push_back(name.empty() ? nullptr : &sides[name]);
    }
  }
  std::vector<Rows> split(drivers.names.size());
  for (size_t g = 0; g < analysis.groups.size(); ++g) {
    Rows rows;
    for (const int i : analysis.groups[g]) {
      if (analysis.Row(i).timed()) rows.push_back(i);
    }
    const auto older = analysis.older.find(g);
    if (rows.empty() && older == analysis.older.end()) continue;
    const ReportRow& first = analysis.Row(analysis.groups[g][0]);
    const auto environment = static_cast<size_t>(first.environment);
    for (const int i : rows) split[drivers.Of(analysis.Row(i))].push_back(i);
    if (older != analysis.older.end()) {
      for (const int i : older->second) {
        if (analysis.Row(i).timed()) split[drivers.Of(analysis.Row(i))].push_back(i);
      }
    }
    if (!rows.empty()) (*cudnn_sides[environment])[first.problem] = std::move(rows);
    for (size_t d = 0; d < split.size(); ++d) {
      Rows& of_driver = split[d];
      if (of_driver.empty()) continue;
      std::stable_sort(of_driver.begin(), of_driver.end(),
                       [&](int x, int y) { return analysis.GpuOf(x) < analysis.GpuOf(y); });
      Side* const side = driver_sides[environment][d];
      if (side != nullptr) (*side)[first.problem] = of_driver;
      of_driver.clear();
    }
  }
  // Versions of which nothing was timed stand between no others.
  for (auto* subjects : {&by_cudnn, &by_driver}) {
    for (auto& [subject, sides] : *subjects) {
      std::erase_if(sides, [](const auto& side) { return side.second.empty(); });
    }
  }
  const Comparison comparison(analysis, drivers);
  const auto add = [&](const std::map<std::string, Sides>& subjects, ReportUpgrade::Kind kind) {
    for (const auto& [subject, sides] : subjects) {
      for (auto to = sides.begin(); to != sides.end(); ++to) {
        if (to == sides.begin()) continue;
        const auto from = std::prev(to);
        ReportUpgrade upgrade =
            comparison.Compare(from->second, to->second, kind == ReportUpgrade::Kind::kCudnn);
        if (upgrade.points.empty()) continue;
        upgrade.kind = kind;
        upgrade.subject = subject;
        upgrade.from = from->first;
        upgrade.to = to->first;
        report->upgrades.push_back(std::move(upgrade));
      }
    }
  };
  add(by_cudnn, ReportUpgrade::Kind::kCudnn);
  add(by_driver, ReportUpgrade::Kind::kDriver);
}

}  // namespace convtune

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

class Comparison {
 public:
  explicit Comparison(const ReportAnalysis& analysis) : a_(analysis) {}

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
    std::map<std::string, std::pair<Rows, Rows>> by_driver;
    for (const int i : before) by_driver[DriverOf(i)].first.push_back(i);
    for (const int i : after) by_driver[DriverOf(i)].second.push_back(i);
    std::pair<Rows, Rows>* best = nullptr;
    const auto poorer = [](const auto& sides) {
      return std::min(sides.first.size(), sides.second.size());
    };
    for (auto& [driver, sides] : by_driver) {
      if (best == nullptr || poorer(sides) > poorer(*best)) best = &sides;
    }
    return best == nullptr || poorer(*best) == 0 ? std::pair<Rows, Rows>() : std::move(*best);
  }

  const std::string& DriverOf(int i) const {
    return a_.data.places()[static_cast<size_t>(Row(i).place)].driver;
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

  // After over before of each GPU that has both.
  std::vector<double> PairedRatios(const Rows& before, const Rows& after) const {
    std::map<int, double> by_gpu;
    for (const int i : before)
      by_gpu[a_.gpu_of_row[static_cast<size_t>(i)]] = a_.WinnerAtModelSpeed(i);
    std::vector<double> ratios;
    for (const int i : after) {
      const auto found = by_gpu.find(a_.gpu_of_row[static_cast<size_t>(i)]);
      if (found != by_gpu.end()) ratios.push_back(a_.WinnerAtModelSpeed(i) / found->second);
    }
    return ratios;
  }

  ReportUpgrade::Point ComparePoint(int problem, const Rows& before, const Rows& after) const {
    ReportUpgrade::Point point;
    point.problem = problem;
    point.environment = Row(after[0]).environment;
    point.from_winner = Row(before[0]).winner;
    point.to_winner = Row(after[0]).winner;
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

  const ReportAnalysis& a_;
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
  std::map<std::string, Sides> by_cudnn;
  std::map<std::string, Sides> by_driver;
  for (const std::vector<int>& group : analysis.groups) {
    for (const int i : group) {
      const ReportRow& row = analysis.data.rows()[static_cast<size_t>(i)];
      if (!row.timed()) continue;
      const Environment& e = analysis.EnvironmentOf(row);
      by_cudnn[WithoutCudnn(e)][CudnnText(e)][row.problem].push_back(i);
    }
  }
  for (size_t i = 0; i < analysis.data.rows().size(); ++i) {
    const ReportRow& row = analysis.data.rows()[i];
    const std::string& driver = analysis.data.places()[static_cast<size_t>(row.place)].driver;
    if (!row.timed() || driver.empty()) continue;
    by_driver[analysis.EnvironmentOf(row).ToText()][driver][row.problem].push_back(
        static_cast<int>(i));
  }
  const Comparison comparison(analysis);
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

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "client/report/analysis.h"

namespace convtune::report {
namespace {

// The environment without its cuDNN version.
std::string WithoutCudnn(Environment e) {
  e.cudnn = {};
  std::string text = e.ToText();
  const size_t begin = text.find(",cudnn=");
  const size_t end = text.find(',', begin + 1);
  return begin == std::string::npos ? text : text.erase(begin, end - begin);
}

// "9.9" before "9.10".
struct VersionOrder {
  bool operator()(const std::string& a, const std::string& b) const {
    return strverscmp(a.c_str(), b.c_str()) < 0;
  }
};
// Environments, or drivers, by version.
using Versions = std::map<std::string, int, VersionOrder>;

class Upgrades {
 public:
  explicit Upgrades(const ReportAnalysis& analysis) : a_(analysis) {
    std::map<std::string, int> numbers;  // in the order of their texts
    for (const ReportPlace& place : a_.data.places()) numbers.emplace(place.driver, 0);
    for (auto& [name, number] : numbers) {
      number = static_cast<int>(drivers_.size());
      drivers_.push_back(name);
    }
    for (const ReportPlace& place : a_.data.places()) {
      driver_of_place_.push_back(numbers[place.driver]);
    }
  }

  void Make(Report* report) {
    std::map<std::string, Versions> cudnns;   // by the environment without its version
    std::map<std::string, Versions> drivers;  // by the environment
    std::map<std::string, int> environments;
    for (int e = 0; e < static_cast<int>(a_.data.environments().size()); ++e) {
      const Environment& environment = a_.data.environments()[static_cast<size_t>(e)];
      environments[environment.ToText()] = e;
      for (size_t p = 0; p < driver_of_place_.size(); ++p) {
        if (!a_.HasTimed(static_cast<int>(p), e)) continue;
        // Versions of which nothing was timed stand between no others.
        cudnns[WithoutCudnn(environment)][environment.cudnn.ToText()] = e;
        const int driver = driver_of_place_[p];
        const std::string& name = drivers_[static_cast<size_t>(driver)];
        if (!name.empty()) drivers[environment.ToText()][name] = driver;
      }
    }
    for (const auto& [subject, versions] : cudnns) {
      Steps(
          ReportUpgrade::Kind::kCudnn, subject, versions,
          [this](int from, int to) { return CompareCudnns(from, to); }, report);
    }
    for (const auto& [subject, versions] : drivers) {
      const int environment = environments[subject];
      Steps(
          ReportUpgrade::Kind::kDriver, subject, versions,
          [&](int from, int to) { return CompareDrivers(environment, from, to); }, report);
    }
  }

 private:
  using Point = ReportUpgrade::Point;
  using Rows = std::vector<const ReportRow*>;  // timed ones of a problem, before or after

  // Each version against the one before it.
  template <typename Compare>
  static void Steps(ReportUpgrade::Kind kind, const std::string& subject, const Versions& versions,
                    const Compare& compare, Report* report) {
    for (auto from = versions.begin(), to = from; ++to != versions.end(); ++from) {
      ReportUpgrade upgrade;
      upgrade.kind = kind;
      upgrade.subject = subject;
      upgrade.from = from->first;
      upgrade.to = to->first;
      upgrade.points = compare(from->second, to->second);
      if (upgrade.points.empty()) continue;
      Summarize(&upgrade);
      report->upgrades.push_back(std::move(upgrade));
    }
  }

  static void Summarize(ReportUpgrade* upgrade) {
    double logs = 0;
    for (const Point& point : upgrade->points) {
      logs += std::log(point.to_us / point.from_us);
      if (!point.beyond_noise) continue;
      ++(point.to_us > point.from_us ? upgrade->regressions : upgrade->improvements);
    }
    upgrade->ratio = std::exp(logs / static_cast<double>(upgrade->points.size()));
    std::stable_sort(
        upgrade->points.begin(), upgrade->points.end(),
        [](const Point& x, const Point& y) { return x.to_us - x.from_us > y.to_us - y.from_us; });
  }

  // Problems of two environments, on one driver where any problem was timed by one before
  // and after.
  std::vector<Point> CompareCudnns(int from, int to) const {
    std::vector<Point> one_driver, any;
    for (const ReportAnalysis::Pair& pair : a_.pairs) {
      if (pair.environment != to) continue;
      const ReportAnalysis::Pair* const other = a_.Find(from, pair.problem);
      if (other == nullptr || other->timed.empty() || pair.timed.empty()) continue;
      const int driver = CommonDriver(other->timed, pair.timed);
      if (driver >= 0) {
        one_driver.push_back(Compare(Select({other->timed}, driver), Select({pair.timed}, driver)));
      } else if (one_driver.empty()) {
        any.push_back(Compare(Select({other->timed}, -1), Select({pair.timed}, -1)));
      }
    }
    return one_driver.empty() ? any : one_driver;
  }

  std::vector<Point> CompareDrivers(int environment, int from, int to) const {
    std::vector<Point> points;
    for (const ReportAnalysis::Pair& pair : a_.pairs) {
      if (pair.environment != environment) continue;
      const Rows before = Select({pair.timed, pair.older}, from);
      const Rows after = Select({pair.timed, pair.older}, to);
      if (!before.empty() && !after.empty()) points.push_back(Compare(before, after));
    }
    return points;
  }

  int DriverOf(const ReportRow& row) const {
    return driver_of_place_[static_cast<size_t>(row.place)];
  }

  // Returns the driver whose rows of `before` and `after` are compared; -1 if no driver has rows on
  // both sides. Rows of two drivers are never compared, since their difference may be the drivers'.
  // The driver is the one whose smaller side has the most rows.
  int CommonDriver(ReportAnalysis::Rows before, ReportAnalysis::Rows after) const {
    std::vector<std::pair<int, int>> counts(drivers_.size());
    for (const ReportRow& row : before) ++counts[static_cast<size_t>(DriverOf(row))].first;
    for (const ReportRow& row : after) ++counts[static_cast<size_t>(DriverOf(row))].second;
    int best = -1;
    int most = 0;
    for (size_t d = 0; d < counts.size(); ++d) {
      const int poorer = std::min(counts[d].first, counts[d].second);
      if (poorer > most) best = static_cast<int>(d);
      most = std::max(most, poorer);
    }
    return best;
  }

  // The timed ones of a driver; -1: of all.
  Rows Select(std::initializer_list<ReportAnalysis::Rows> lists, int driver) const {
    Rows chosen;
    for (const ReportAnalysis::Rows rows : lists) {
      for (const ReportRow& row : rows) {
        if (row.timed() && (driver < 0 || DriverOf(row) == driver)) chosen.push_back(&row);
      }
    }
    return chosen;
  }

  Point Compare(const Rows& before, const Rows& after) const {
    std::vector<double> from, to, ratios;
    absl::flat_hash_map<int, double> from_of_gpu;
    for (const ReportRow* row : before) {
      from.push_back(a_.AtModelSpeed(*row, row->winner_us()));
      from_of_gpu.emplace(a_.GpuOf(*row), from.back());
    }
    for (const ReportRow* row : after) {
      to.push_back(a_.AtModelSpeed(*row, row->winner_us()));
      const auto same = from_of_gpu.find(a_.GpuOf(*row));
      if (same != from_of_gpu.end()) ratios.push_back(to.back() / same->second);
    }
    Point point;
    point.problem = after[0]->problem;
    point.environment = after[0]->environment;
    point.from_winner = Winner(before);
    point.to_winner = Winner(after);
    point.from_us = MedianOf(from);
    double noise = 0;
    if (ratios.empty()) {
      point.to_us = MedianOf(to);
      noise = UncertaintyOf(from, point.from_us, Alone(before)) +
              UncertaintyOf(to, point.to_us, Alone(after));
    } else {
      // The same GPUs before and after: what differs between GPUs is out.
      const double ratio = MedianOf(ratios);
      point.to_us = point.from_us * ratio;
      noise = UncertaintyOf(ratios, ratio, Alone(before) + Alone(after));
    }
    point.beyond_noise =
        std::abs(std::log(point.to_us / point.from_us)) > std::log1p(kLeastChange) + noise;
    return point;
  }

  // Half the widest interval of them, relative.
  static double Alone(const Rows& rows) {
    double widest = 0;
    for (const ReportRow* row : rows) {
      const ReportTime& time = row->times.front();
      widest =
          std::max(widest, static_cast<double>(time.high_us - time.low_us) / (2 * time.median_us));
    }
    return widest;
  }

  int Winner(const Rows& rows) const {
    std::map<int, int> winners;
    for (const ReportRow* row : rows) ++winners[row->winner];
    return MostFrequent(winners, a_.data.candidates());
  }

  const ReportAnalysis& a_;
  std::vector<std::string> drivers_;
  std::vector<int> driver_of_place_;
};

}  // namespace

void AddUpgrades(const ReportAnalysis& analysis, Report* report) {
  Upgrades(analysis).Make(report);
}

}  // namespace convtune::report

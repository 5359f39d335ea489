#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "client/report/analysis.h"
#include "proto/model/tuning/median.h"

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
// Environments by a version of theirs: of cuDNN, or of the driver.
using Versions = std::map<std::string, int, VersionOrder>;

class Upgrades {
 public:
  explicit Upgrades(const ReportAnalysis& analysis) : a_(analysis) {}

  void Make(Report* report) {
    std::map<std::string, Versions> cudnns;   // by the environment without its version
    std::map<std::string, Versions> drivers;  // by the environment
    for (int e = 0; e < static_cast<int>(a_.data.environments().size()); ++e) {
      const Environment& environment = a_.data.environments()[static_cast<size_t>(e)];
      for (size_t p = 0; p < a_.data.places().size(); ++p) {
        if (!a_.HasTimed(static_cast<int>(p), e)) continue;
        // A version of which nothing was timed does not separate the two beside it.
        cudnns[WithoutCudnn(environment)][environment.cudnn.ToText()] = e;
        const std::string& driver = a_.data.places()[p].driver;
        if (!driver.empty()) drivers[environment.ToText()][driver] = e;
      }
    }
    for (const auto& [subject, versions] : cudnns) {
      Steps(ReportUpgrade::Kind::kCudnn, subject, versions, report);
    }
    for (const auto& [subject, versions] : drivers) {
      Steps(ReportUpgrade::Kind::kDriver, subject, versions, report);
    }
  }

 private:
  using Point = ReportUpgrade::Point;
  using Rows = std::vector<const ReportRow*>;  // timed ones of a problem, before or after
  using Driver = std::optional<std::string_view>;

  // Each version against the one before it.
  void Steps(ReportUpgrade::Kind kind, const std::string& subject, const Versions& versions,
             Report* report) const {
    for (auto from = versions.begin(), to = from; ++to != versions.end(); ++from) {
      ReportUpgrade upgrade;
      upgrade.kind = kind;
      upgrade.subject = subject;
      upgrade.from = from->first;
      upgrade.to = to->first;
      upgrade.points = kind == ReportUpgrade::Kind::kCudnn
                           ? CompareCudnns(from->second, to->second)
                           : CompareDrivers(to->second, from->first, to->first);
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
      const Driver driver = CommonDriver(other->timed, pair.timed);
      if (driver) {
        one_driver.push_back(Compare(Select({other->timed}, driver), Select({pair.timed}, driver)));
      } else if (one_driver.empty()) {
        any.push_back(Compare(Select({other->timed}, {}), Select({pair.timed}, {})));
      }
    }
    return one_driver.empty() ? any : one_driver;
  }

  std::vector<Point> CompareDrivers(int environment, std::string_view from,
                                    std::string_view to) const {
    std::vector<Point> points;
    for (const ReportAnalysis::Pair& pair : a_.pairs) {
      if (pair.environment != environment) continue;
      const Rows before = Select({pair.timed, pair.older}, from);
      const Rows after = Select({pair.timed, pair.older}, to);
      if (!before.empty() && !after.empty()) points.push_back(Compare(before, after));
    }
    return points;
  }

  std::string_view DriverOf(const ReportRow& row) const {
    return a_.data.places()[static_cast<size_t>(row.place)].driver;
  }

  // Returns the driver whose rows of `before` and `after` are compared; nullopt if no driver has
  // rows on both sides. Rows of two drivers are never compared, since their difference may be the
  // drivers'. The driver is the one whose smaller side has the most rows.
  Driver CommonDriver(ReportAnalysis::Rows before, ReportAnalysis::Rows after) const {
    std::map<std::string_view, std::pair<int, int>> counts;
    for (const ReportRow& row : before) ++counts[DriverOf(row)].first;
    for (const ReportRow& row : after) ++counts[DriverOf(row)].second;
    Driver best;
    int most = 0;
    for (const auto& [driver, count] : counts) {
      const int poorer = std::min(count.first, count.second);
      if (poorer > most) best = driver;
      most = std::max(most, poorer);
    }
    return best;
  }

  // The timed ones of a driver; nullopt: of all.
  Rows Select(std::initializer_list<ReportAnalysis::Rows> lists, Driver driver) const {
    Rows chosen;
    for (const ReportAnalysis::Rows rows : lists) {
      for (const ReportRow& row : rows) {
        if (row.timed() && (!driver || DriverOf(row) == *driver)) chosen.push_back(&row);
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
    point.from_us = Median(from);
    double noise = 0;
    if (ratios.empty()) {
      point.to_us = Median(to);
      noise = UncertaintyOf(from, point.from_us, Alone(before)) +
              UncertaintyOf(to, point.to_us, Alone(after));
    } else {
      // The same GPUs before and after: what differs between GPUs is out.
      const double ratio = Median(ratios);
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
};

}  // namespace

void AddUpgrades(const ReportAnalysis& analysis, Report* report) {
  Upgrades(analysis).Make(report);
}

}  // namespace convtune::report

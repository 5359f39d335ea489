#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/report/analysis.h"

namespace convtune::report {
namespace {

// Timed rows of one problem before an upgrade, or after it, in the order of the GPUs.
using Rows = ReportAnalysis::Group;

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

// Compares one problem with itself. Not thread-safe: what it works with is kept.
class Comparer {
 public:
  Comparer(const ReportAnalysis& analysis, const Drivers& drivers)
      : a_(analysis), drivers_(drivers) {}

  ReportUpgrade::Point Compare(Rows before, Rows after) {
    ReportUpgrade::Point point;
    point.problem = a_.Row(after[0]).problem;
    point.environment = a_.Row(after[0]).environment;
    point.from_winner = Winner(before);
    point.to_winner = Winner(after);
    Times(before, &from_);
    Times(after, &to_);
    PairRatios(before, after);
    double noise = 0;
    point.from_us = MedianOf(&from_);
    if (ratios_.empty()) {
      point.to_us = MedianOf(&to_);
      noise = UncertaintyOf(from_, point.from_us, Alone(before)) +
              UncertaintyOf(to_, point.to_us, Alone(after));
    } else {
      // The same GPUs before and after: what differs between GPUs is out.
      const double ratio = MedianOf(&ratios_);
      point.to_us = point.from_us * ratio;
      noise = UncertaintyOf(ratios_, ratio, Alone(before) + Alone(after));
    }
    point.beyond_noise = std::abs(std::log(point.to_us / point.from_us)) >
                         std::log1p(a_.options.least_change) + noise;
    return point;
  }

  // The same with the rows of one driver alone, that which has most on its poorer
  // side, so that a driver's effect is not taken for cuDNN's; nullopt if none has both.
  std::optional<ReportUpgrade::Point> CompareOneDriver(Rows before, Rows after) {
    counts_.assign(drivers_.names.size(), {0, 0});
    for (const int i : before) ++counts_[drivers_.Of(a_.Row(i))].first;
    for (const int i : after) ++counts_[drivers_.Of(a_.Row(i))].second;
    size_t best = 0;
    const auto poorer = [this](size_t d) { return std::min(counts_[d].first, counts_[d].second); };
    for (size_t d = 1; d < counts_.size(); ++d) {
      if (poorer(d) > poorer(best)) best = d;
    }
    if (counts_.empty() || poorer(best) == 0) return std::nullopt;
    Select(before, best, &before_);
    Select(after, best, &after_);
    return Compare(before_, after_);
  }

 private:
  void Select(Rows rows, size_t driver, std::vector<int>* chosen) const {
    chosen->clear();
    for (const int i : rows) {
      if (drivers_.Of(a_.Row(i)) == driver) chosen->push_back(i);
    }
  }

  void Times(Rows rows, std::vector<double>* times) const {
    times->clear();
    for (const int i : rows) times->push_back(a_.WinnerAtModelSpeed(i));
  }

  // Half the widest interval of them, relative.
  double Alone(Rows rows) const {
    double widest = 0;
    for (const int i : rows) {
      const ReportTime& time = a_.Row(i).times.front();
      widest =
          std::max(widest, static_cast<double>(time.high_us - time.low_us) / (2 * time.median_us));
    }
    return widest;
  }

  // After over before of each GPU that has both, into ratios_; times are there.
  void PairRatios(Rows before, Rows after) {
    ratios_.clear();
    size_t from = 0;
    for (size_t to = 0; to < after.size(); ++to) {
      const int gpu = a_.GpuOf(after[to]);
      while (from < before.size() && a_.GpuOf(before[from]) < gpu) ++from;
      if (from == before.size()) break;
      if (a_.GpuOf(before[from]) == gpu) ratios_.push_back(to_[to] / from_[from]);
    }
  }

  int Winner(Rows rows) {
    winners_.clear();
    for (const int i : rows) winners_.push_back(a_.Row(i).winner);
    return MostFrequent(winners_, a_.data.candidates());
  }

  const ReportAnalysis& a_;
  const Drivers& drivers_;
  std::vector<double> from_, to_, ratios_;
  std::vector<int> before_, after_, winners_;
  std::vector<std::pair<int, int>> counts_;  // by driver, before and after
};

// The environment without its cuDNN version.
std::string WithoutCudnn(Environment e) {
  e.cudnn = {};
  std::string text = e.ToText();
  const size_t begin = text.find(",cudnn=");
  const size_t end = text.find(',', begin + 1);
  return begin == std::string::npos ? text : text.erase(begin, end - begin);
}

// What is compared, and what came of it.
struct Subject {
  ReportUpgrade upgrade;
  int from_environment = -1;  // of cuDNN
  std::vector<ReportUpgrade::Point> points;
};

struct VersionOrder {
  bool operator()(const std::string& a, const std::string& b) const { return VersionBefore(a, b); }
};

class Upgrades {
 public:
  explicit Upgrades(const ReportAnalysis& analysis)
      : a_(analysis), drivers_(analysis.data.places()) {
    const size_t environments = a_.data.environments().size();
    group_at_.assign(environments * a_.data.problems().size(), -1);
    for (size_t g = 0; g < a_.groups.size(); ++g) {
      const ReportRow& row = a_.Row(a_.groups[g][0]);
      group_at_[Cell(row.environment, row.problem)] = static_cast<int>(g);
    }
    timed_drivers_.assign(environments, std::vector<bool>(drivers_.names.size()));
    for (size_t e = 0; e < environments; ++e) {
      for (size_t p = 0; p < a_.data.places().size(); ++p) {
        if (a_.HasTimed(p, e)) timed_drivers_[e][drivers_.of_place[p]] = true;
      }
    }
    FindCudnns();
    FindDrivers();
  }

  void Make(Report* report) {
    ComparePoints();
    for (Subject& subject : subjects_) {
      if (subject.points.empty()) CompareAcrossDrivers(&subject);
      if (!subject.points.empty()) report->upgrades.push_back(Finish(&subject));
    }
  }

 private:
  size_t Cell(int environment, int problem) const {
    return static_cast<size_t>(environment) * a_.data.problems().size() +
           static_cast<size_t>(problem);
  }
  Rows TimedOf(int group) const {
    const auto g = static_cast<size_t>(group);
    return a_.groups[g].first(a_.timed_counts[g]);
  }
  Rows TimedAt(int environment, int problem) const {
    const int group = group_at_[Cell(environment, problem)];
    return group < 0 ? Rows() : TimedOf(group);
  }
  bool AnyTimed(size_t environment) const {
    const std::vector<bool>& drivers = timed_drivers_[environment];
    return std::find(drivers.begin(), drivers.end(), true) != drivers.end();
  }

  // Versions of which nothing was timed stand between no others.
  void FindCudnns() {
    std::map<std::string, std::map<std::string, int, VersionOrder>> versions;
    for (size_t e = 0; e < timed_drivers_.size(); ++e) {
      const Environment& environment = a_.data.environments()[e];
      if (AnyTimed(e)) {
        versions[WithoutCudnn(environment)][environment.cudnn.ToText()] = static_cast<int>(e);
      }
    }
    cudnn_subject_.assign(timed_drivers_.size(), -1);
    for (const auto& [name, environments] : versions) {
      for (auto to = environments.begin(); to != environments.end(); ++to) {
        if (to == environments.begin()) continue;
        const auto from = std::prev(to);
        cudnn_subject_[static_cast<size_t>(to->second)] = static_cast<int>(subjects_.size());
        Subject& subject = subjects_.emplace_back();
        subject.upgrade.kind = ReportUpgrade::Kind::kCudnn;
        subject.upgrade.subject = name;
        subject.upgrade.from = from->first;
        subject.upgrade.to = to->first;
        subject.from_environment = from->second;
      }
    }
  }

  void FindDrivers() {
    std::map<std::string, size_t> by_text;
    for (size_t e = 0; e < timed_drivers_.size(); ++e) {
      by_text[a_.data.environments()[e].ToText()] = e;
    }
    driver_subjects_.resize(timed_drivers_.size());
    for (const auto& [text, e] : by_text) {
      std::map<std::string, size_t, VersionOrder> versions;
      for (size_t d = 0; d < drivers_.names.size(); ++d) {
        if (timed_drivers_[e][d] && !drivers_.names[d].empty()) versions[drivers_.names[d]] = d;
      }
      for (auto to = versions.begin(); to != versions.end(); ++to) {
        if (to == versions.begin()) continue;
        const auto from = std::prev(to);
        driver_subjects_[e].push_back({from->second, to->second, subjects_.size()});
        Subject& subject = subjects_.emplace_back();
        subject.upgrade.kind = ReportUpgrade::Kind::kDriver;
        subject.upgrade.subject = text;
        subject.upgrade.from = from->first;
        subject.upgrade.to = to->first;
      }
    }
  }

  // Each group as what comes after an upgrade of cuDNN, and of a driver.
  void ComparePoints() {
    using Points = std::vector<std::vector<ReportUpgrade::Point>>;  // by subject
    std::vector<Points> points(a_.workers, Points(subjects_.size()));
    InParallel(a_.workers, a_.groups.size(), [&](size_t worker, size_t begin, size_t end) {
      Comparer comparer(a_, drivers_);
      std::vector<std::vector<int>> split(drivers_.names.size());
      for (size_t g = begin; g < end; ++g) {
        const ReportRow& row = a_.Row(a_.groups[g][0]);
        const auto environment = static_cast<size_t>(row.environment);
        const int cudnn = cudnn_subject_[environment];
        const Rows after = TimedOf(static_cast<int>(g));
        if (cudnn >= 0 && !after.empty()) {
          const auto number = static_cast<size_t>(cudnn);
          const Rows before = TimedAt(subjects_[number].from_environment, row.problem);
          const auto point = comparer.CompareOneDriver(before, after);
          if (point.has_value()) points[worker][number].push_back(*point);
        }
        if (driver_subjects_[environment].empty()) continue;
        Split(g, &split);
        for (const DriverStep& step : driver_subjects_[environment]) {
          if (split[step.from].empty() || split[step.to].empty()) continue;
          points[worker][step.subject].push_back(
              comparer.Compare(split[step.from], split[step.to]));
        }
      }
    });
    for (Points& each : points) {
      for (size_t i = 0; i < subjects_.size(); ++i) {
        std::move(each[i].begin(), each[i].end(), std::back_inserter(subjects_[i].points));
      }
    }
  }

  // Timed rows by driver, with what GPUs had before.
  void Split(size_t group, std::vector<std::vector<int>>* split) const {
    for (std::vector<int>& rows : *split) rows.clear();
    for (const int i : TimedOf(static_cast<int>(group))) {
      (*split)[drivers_.Of(a_.Row(i))].push_back(i);
    }
    const auto older = a_.older.find(group);
    if (older == a_.older.end()) return;
    for (const int i : older->second) {
      if (a_.Row(i).timed()) (*split)[drivers_.Of(a_.Row(i))].push_back(i);
    }
    for (std::vector<int>& rows : *split) {
      std::stable_sort(rows.begin(), rows.end(),
                       [this](int x, int y) { return a_.GpuOf(x) < a_.GpuOf(y); });
    }
  }

  // Where no problem was timed by one driver before and after.
  void CompareAcrossDrivers(Subject* subject) {
    if (subject->upgrade.kind != ReportUpgrade::Kind::kCudnn) return;
    Comparer comparer(a_, drivers_);
    const auto number = static_cast<int>(subject - subjects_.data());
    for (size_t g = 0; g < a_.groups.size(); ++g) {
      const ReportRow& row = a_.Row(a_.groups[g][0]);
      if (cudnn_subject_[static_cast<size_t>(row.environment)] != number) continue;
      const Rows before = TimedAt(subject->from_environment, row.problem);
      const Rows after = TimedOf(static_cast<int>(g));
      if (before.empty() || after.empty()) continue;
      subject->points.push_back(comparer.Compare(before, after));
    }
  }

  static ReportUpgrade Finish(Subject* subject) {
    ReportUpgrade upgrade = std::move(subject->upgrade);
    upgrade.points = std::move(subject->points);
    std::sort(upgrade.points.begin(), upgrade.points.end(),
              [](const auto& x, const auto& y) { return x.problem < y.problem; });
    double logs = 0;
    for (const ReportUpgrade::Point& point : upgrade.points) {
      logs += std::log(point.to_us / point.from_us);
      if (!point.beyond_noise) continue;
      ++(point.to_us > point.from_us ? upgrade.regressions : upgrade.improvements);
    }
    upgrade.ratio = std::exp(logs / static_cast<double>(upgrade.points.size()));
    std::stable_sort(
        upgrade.points.begin(), upgrade.points.end(),
        [](const auto& x, const auto& y) { return x.to_us - x.from_us > y.to_us - y.from_us; });
    return upgrade;
  }

  struct DriverStep {
    size_t from, to, subject;
  };

  const ReportAnalysis& a_;
  const Drivers drivers_;
  std::vector<int> group_at_;                     // by environment and problem
  std::vector<std::vector<bool>> timed_drivers_;  // by environment, by driver
  std::vector<Subject> subjects_;                 // in the order of the report
  // Of each environment, as what comes after.
  std::vector<int> cudnn_subject_;
  std::vector<std::vector<DriverStep>> driver_subjects_;
};

}  // namespace

void AddUpgrades(const ReportAnalysis& analysis, Report* report) {
  Upgrades(analysis).Make(report);
}

}  // namespace convtune::report

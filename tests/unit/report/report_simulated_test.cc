// What is planted in a fleet of 1,000 nodes is found, and nothing else.
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>

#include "client/report/report.h"
#include "tests/unit/report/simulated_fleet.h"

namespace convtune::report {
namespace {

using Findings = std::set<SimulatedFleet::Finding>;

// Both lists whole would be thousands of lines.
template <typename Set>
void ExpectSame(const Set& found, const Set& planted) {
  for (const auto& one : planted) {
    EXPECT_TRUE(found.contains(one)) << "not found: " << testing::PrintToString(one);
  }
  for (const auto& one : found) {
    EXPECT_TRUE(planted.contains(one)) << "not there: " << testing::PrintToString(one);
  }
}

class SimulatedReport : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    fleet_ = new SimulatedFleet({});
    data_ = new ReportData();
    for (int node = 0; node < fleet_->nodes(); ++node) {
      for (const auto& [tuning, environment] : fleet_->TuningsOf(node)) {
        data_->Add(tuning, environment);
      }
    }
    ReportOptions options;
    options.now = SimulatedFleet::Now();
    report_ = new Report(MakeReport(options, data_));
  }

  static SimulatedFleet::Finding FindingOf(int environment, int problem) {
    return {data_->environments()[static_cast<size_t>(environment)].ToText(),
            data_->problems()[static_cast<size_t>(problem)].text};
  }

  static Findings Regressions(ReportUpgrade::Kind kind) {
    Findings found;
    for (const ReportUpgrade& upgrade : report_->upgrades) {
      if (upgrade.kind != kind) continue;
      for (const ReportUpgrade::Point& point : upgrade.points) {
        if (point.beyond_noise && point.to_us > point.from_us) {
          found.insert(FindingOf(point.environment, point.problem));
        }
      }
    }
    return found;
  }

  static SimulatedFleet* fleet_;
  static ReportData* data_;
  static Report* report_;
};

SimulatedFleet* SimulatedReport::fleet_ = nullptr;
ReportData* SimulatedReport::data_ = nullptr;
Report* SimulatedReport::report_ = nullptr;

TEST_F(SimulatedReport, IsOfTheSizeThatWasMeant) {
  EXPECT_EQ(report_->headline.nodes, 1000);
  EXPECT_EQ(report_->headline.environments, 6);
  EXPECT_EQ(report_->headline.problems, 10'000);
  EXPECT_GT(report_->headline.rows, 150'000);
}

TEST_F(SimulatedReport, FindsTheSlowGpusAndNoOther) {
  std::set<std::string> planted;
  for (int node = 0; node < fleet_->nodes(); ++node) {
    if (SimulatedFleet::IsSlow(node)) planted.insert(SimulatedFleet::NodeName(node));
  }
  std::set<std::string> found;
  for (const ReportGpu& gpu : report_->gpus) {
    if (!gpu.slow) continue;
    found.insert(gpu.node);
    EXPECT_NEAR(gpu.ratio, 1.12, 0.03) << gpu.node;
    EXPECT_LT(gpu.clock_mhz, gpu.model_clock_mhz - 150);
    EXPECT_EQ(gpu.throttled, 1.0);
  }
  EXPECT_GE(planted.size(), 12U);
  ExpectSame(found, planted);
}

TEST_F(SimulatedReport, FindsTheDisagreementsAndNoOther) {
  Findings found;
  for (const ReportDisagreement& d : report_->disagreements) {
    found.insert(FindingOf(d.environment, d.problem));
    EXPECT_NEAR(d.others[0].cost_ratio, 1.2, 0.02);
  }
  EXPECT_GE(fleet_->Disagreements().size(), 20U);
  ExpectSame(found, fleet_->Disagreements());
}

TEST_F(SimulatedReport, FindsCudnnsRegressionsAndNoOther) {
  EXPECT_GE(fleet_->CudnnRegressions().size(), 20U);
  ExpectSame(Regressions(ReportUpgrade::Kind::kCudnn), fleet_->CudnnRegressions());
}

TEST_F(SimulatedReport, FindsTheDriversRegressionsAndNoOther) {
  EXPECT_GE(fleet_->DriverRegressions().size(), 20U);
  ExpectSame(Regressions(ReportUpgrade::Kind::kDriver), fleet_->DriverRegressions());
}

TEST_F(SimulatedReport, NothingBecameFaster) {
  for (const ReportUpgrade& upgrade : report_->upgrades) EXPECT_EQ(upgrade.improvements, 0);
}

TEST_F(SimulatedReport, KnowsWhatIsStale) {
  int64_t stale = 0;
  for (int node = 0; node < fleet_->nodes(); ++node) {
    const int environments = SimulatedFleet::HasBoth(node) ? 2 : 1;
    stale += SimulatedFleet::IsOld(node) ? 150 * environments : environments == 2 ? 150 : 0;
  }
  EXPECT_NEAR(*report_->headline.stale,
              static_cast<double>(stale) / static_cast<double>(report_->headline.rows), 1e-9);
}

TEST_F(SimulatedReport, GainAndStockShareAreThoseThatWerePlanted) {
  // Of every second problem the stock choice takes 1.3 times as long.
  EXPECT_NEAR(*report_->headline.gain, std::sqrt(1.3), 0.005);
  EXPECT_NEAR(*report_->headline.stock_is_best, 0.5, 0.01);
  EXPECT_EQ(report_->headline.coverage, 1.0);
}

}  // namespace
}  // namespace convtune::report

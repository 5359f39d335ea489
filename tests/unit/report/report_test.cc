#include "client/report/report.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <tuple>
#include <vector>

#include "client/report/analysis.h"
#include "proto/model/tuning/median.h"
#include "tests/unit/report/sample_rows.h"

namespace convtune::report {
namespace {

TEST(MakeReport, NothingGivesNoNumbersRatherThanZeros) {
  ReportData data;
  const Report report = MakeReport(SampleOptions(), &data);
  EXPECT_EQ(report.headline.rows, 0);
  EXPECT_FALSE(report.headline.coverage);
  EXPECT_FALSE(report.headline.gain);
  EXPECT_FALSE(report.headline.stale);
  EXPECT_FALSE(report.headline.hit_ratio);
  EXPECT_TRUE(report.upgrades.empty());
}

TEST(MakeReport, RowsWithoutTimesAreCountedAndNotCompared) {
  ReportData data;
  AddSample(&data, {.times = {{"graph:eng1", 0}, {"graph:eng2", 0}}, .stock = 1});
  const Report report = MakeReport(SampleOptions(), &data);
  EXPECT_EQ(report.headline.heuristic, 1);
  EXPECT_EQ(report.headline.timed_pairs, 0);
  EXPECT_EQ(report.headline.coverage, 0.0);
  EXPECT_FALSE(report.headline.gain);
  EXPECT_FALSE(report.headline.stock_is_best);
  EXPECT_TRUE(report.roofs.empty());
  ASSERT_EQ(report.shares.size(), 1U);
  EXPECT_EQ(report.shares[0].engines[0].first, "eng1");
}

TEST(MakeReport, GainIsTheGeometricMeanOfStockOverWinner) {
  ReportData data;
  AddSample(&data, {.times = {{"graph:eng1", 10}, {"graph:eng2", 20}}, .stock = 1});
  AddSample(&data,
            {.times = {{"graph:eng1", 10}, {"graph:eng2", 20}}, .problem = SampleProblem(1)});
  const Report report = MakeReport(SampleOptions(), &data);
  EXPECT_EQ(report.headline.compared_pairs, 2);
  EXPECT_NEAR(*report.headline.gain, std::sqrt(2.0), 1e-6);
  EXPECT_EQ(report.headline.stock_is_best, 0.5);
  EXPECT_EQ(report.headline.search_seconds, 4);
}

TEST(MakeReport, WhatIsWantedAndNotKnownLowersTheCoverage) {
  ReportData data;
  AddSample(&data, {});
  data.AddWanted({.problem = SampleProblem(0), .environment = "nvidia-h200", .misses = 2});
  data.AddWanted({.problem = SampleProblem(1), .environment = "nvidia-h200", .misses = 2});
  const Report report = MakeReport(SampleOptions(), &data);
  EXPECT_EQ(report.headline.wanted_pairs, 1);
  EXPECT_EQ(report.headline.coverage, 0.5);
}

TEST(MakeReport, HitRatioIsOfAllNodesThatWereAsked) {
  ReportData data;
  data.AddCounters(10, 9);
  data.AddCounters(30, 21);
  EXPECT_EQ(MakeReport(SampleOptions(), &data).headline.hit_ratio, 0.75);
}

TEST(MakeReport, OldRowsAndThoseOfACudnnThatTheGpuHasLeftAreStale) {
  ReportData data;
  AddSample(&data, {.day = 100, .node = "a", .cudnn = "9.18.0"});
  AddSample(&data, {.day = 100, .node = "a", .cudnn = "9.19.0"});
  AddSample(&data, {.day = 100, .node = "b", .cudnn = "9.18.0"});
  AddSample(&data, {.day = 1, .node = "c"});
  ReportOptions options = SampleOptions();
  options.stale_after = absl::Hours(24 * 30);
  const Report report = MakeReport(options, &data);
  std::vector<bool> stale;
  for (const ReportRow& row : Rows(data)) stale.push_back(row.stale);
  EXPECT_EQ(stale, (std::vector<bool>{true, false, false, true}));
  EXPECT_EQ(report.headline.stale, 0.5);
}

TEST(Disagreements, NeedMoreThanNoise) {
  const auto found = [](double own, double common, double spread) {
    ReportData data;
    for (const char* node : {"a", "b", "c"}) {
      AddSample(&data, {.times = {{"graph:eng1", 10}, {"graph:eng2", 12}}, .node = node});
    }
    AddSample(
        &data,
        {.times = {{"graph:eng2", own}, {"graph:eng1", common}}, .spread = spread, .node = "d"});
    return MakeReport(SampleOptions(), &data).disagreements;
  };
  ASSERT_EQ(found(10, 13, 0.01).size(), 1U);
  const ReportDisagreement disagreement = found(10, 13, 0.01)[0];
  EXPECT_EQ(disagreement.nodes, 4);
  ASSERT_EQ(disagreement.others.size(), 1U);
  EXPECT_NEAR(disagreement.others[0].cost_us, 3, 1e-4);
  EXPECT_NEAR(disagreement.others[0].cost_ratio, 1.3, 1e-4);
  EXPECT_TRUE(found(10, 13, 0.2).empty()) << "the intervals overlap";
  EXPECT_TRUE(found(10, 10.1, 0.001).empty()) << "one in a hundred is nothing";
}

TEST(Disagreements, WhatOneNodeCannotTimeIsNone) {
  ReportData data;
  AddSample(&data, {.times = {{"graph:eng1", 10}}, .node = "a"});
  AddSample(&data, {.times = {{"graph:eng1", 10}}, .node = "b"});
  AddSample(&data, {.times = {{"graph:eng2", 8}}, .node = "c"});
  EXPECT_TRUE(MakeReport(SampleOptions(), &data).disagreements.empty());
}

TEST(Upgrades, SlowerBeyondNoiseIsARegressionMostTimeLostFirst) {
  ReportData data;
  const double after[] = {10.0, 15.0, 10.15, 5.0, 40.0};
  for (int p = 0; p < 5; ++p) {
    AddSample(&data,
              {.times = {{"graph:eng1", 10}}, .problem = SampleProblem(p), .cudnn = "9.9.0"});
    AddSample(
        &data,
        {.times = {{"graph:eng2", after[p]}}, .problem = SampleProblem(p), .cudnn = "9.10.0"});
  }
  const Report report = MakeReport(SampleOptions(), &data);
  ASSERT_EQ(report.upgrades.size(), 1U);
  const ReportUpgrade& upgrade = report.upgrades[0];
  EXPECT_EQ(upgrade.from, "9.9.0");
  EXPECT_EQ(upgrade.to, "9.10.0") << "versions are ordered as numbers";
  EXPECT_EQ(upgrade.regressions, 2);
  EXPECT_EQ(upgrade.improvements, 1);
  EXPECT_NEAR(upgrade.points[0].to_us, 40, 1e-3);
  EXPECT_NEAR(upgrade.points[1].to_us, 15, 1e-3);
  EXPECT_EQ(report.headline.regressions, 2);
}

TEST(Upgrades, ADriversEffectIsNotTakenForCudnns) {
  ReportData data;
  // The newer driver is slower; each cuDNN was timed by both drivers.
  for (const auto& [node, cudnn, driver, us] :
       {std::tuple("a", "9.18.0", "1.0", 10.0), std::tuple("b", "9.18.0", "2.0", 14.0),
        std::tuple("c", "9.19.0", "2.0", 14.0), std::tuple("d", "9.19.0", "2.0", 14.0)}) {
    AddSample(&data,
              {.times = {{"graph:eng1", us}}, .node = node, .cudnn = cudnn, .driver = driver});
  }
  const Report report = MakeReport(SampleOptions(), &data);
  ASSERT_EQ(report.upgrades.size(), 2U);
  EXPECT_EQ(report.upgrades[0].kind, ReportUpgrade::Kind::kCudnn);
  EXPECT_EQ(report.upgrades[0].regressions, 0);
  EXPECT_EQ(report.upgrades[1].kind, ReportUpgrade::Kind::kDriver);
  EXPECT_EQ(report.upgrades[1].regressions, 1);
}

TEST(Upgrades, CardsThatHaveBothSidesAreComparedWithThemselves) {
  ReportData data;
  // GPUs that differ by more than the upgrade.
  const double speeds[] = {1.0, 1.3, 1.6};
  for (int node = 0; node < 3; ++node) {
    const std::string name(1, static_cast<char>('a' + node));
    AddSample(&data,
              {.times = {{"graph:eng1", 10 * speeds[node]}}, .node = name, .cudnn = "9.18.0"});
    AddSample(&data,
              {.times = {{"graph:eng1", 11 * speeds[node]}}, .node = name, .cudnn = "9.19.0"});
  }
  const Report report = MakeReport(SampleOptions(), &data);
  ASSERT_EQ(report.upgrades.size(), 1U);
  EXPECT_EQ(report.upgrades[0].regressions, 1);
  EXPECT_NEAR(report.upgrades[0].ratio, 1.1, 1e-6);
}

TEST(Gpus, AreSlowAgainstTheirModelOnlyWhereEnoughIsCompared) {
  const auto report = [](int problems) {
    ReportData data;
    for (int p = 0; p < problems; ++p) {
      for (const char* node : {"a", "b", "c", "d"}) {
        const bool slow = std::string(node) == "c";
        AddSample(&data, {.times = {{"graph:eng1", slow ? 11 + p : 10 + p * 10.0 / 11}},
                          .node = node,
                          .problem = SampleProblem(p),
                          .clock_mhz = slow ? 1500.0 : 1700.0});
      }
    }
    return MakeReport(SampleOptions(), &data);
  };
  EXPECT_EQ(report(7).headline.slow_gpus, 0);
  const Report found = report(8);
  ASSERT_EQ(found.headline.slow_gpus, 1);
  EXPECT_EQ(found.gpus[0].node, "c");
  EXPECT_NEAR(found.gpus[0].ratio, 1.1, 1e-6);
  EXPECT_EQ(found.gpus[0].clock_mhz, 1500);
  EXPECT_EQ(found.gpus[0].model_clock_mhz, 1700);
  EXPECT_FALSE(found.gpus[0].throttled) << "bundles do not say";
}

TEST(Medians, AreThoseOfTheSortedValues) {
  uint32_t state = 1;
  const auto draw = [&state] { return (state = state * 1664525 + 1013904223) >> 8; };
  const auto expected = [](std::vector<double> values) {
    std::sort(values.begin(), values.end());
    const size_t middle = values.size() / 2;
    return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
  };
  for (size_t count = 1; count < 300; ++count) {
    for (const uint32_t different : {1U, 2U, 5U, 1U << 20}) {
      std::vector<double> values;
      for (size_t i = 0; i < count; ++i) values.push_back(draw() % different + 0.25);
      if (count % 3 == 1) std::sort(values.begin(), values.end());
      if (count % 3 == 2) std::sort(values.rbegin(), values.rend());
      const double median = expected(values);
      EXPECT_EQ(Median(values), median) << count << " of " << different;
    }
  }
}

}  // namespace
}  // namespace convtune::report

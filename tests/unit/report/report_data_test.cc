#include "client/report/report_data.h"

#include <gtest/gtest.h>

#include "tests/unit/report/sample_rows.h"

namespace convtune::report {
namespace {

TEST(ReportData, KeepsWinnerStockAndTimes) {
  ReportData data;
  AddSample(&data, {.times = {{"graph:eng1", 10}, {"graph:eng2", 12}}, .stock = 1});
  ASSERT_EQ(Rows(data).size(), 1U);
  const ReportRow row = Rows(data)[0];
  EXPECT_EQ(data.candidates()[static_cast<size_t>(row.winner)], "graph:eng1");
  EXPECT_EQ(data.candidates()[static_cast<size_t>(row.stock)], "graph:eng2");
  EXPECT_FLOAT_EQ(row.TimeOf(row.stock)->median_us, 12);
  EXPECT_EQ(row.TimeOf(99), nullptr);
  EXPECT_EQ(data.problems()[0].operation, Operation::kFwd);
  EXPECT_GT(data.problems()[0].flops, 0);
}

TEST(ReportData, AnUntimedRowHasAWinnerAndNoTime) {
  ReportData data;
  AddSample(&data, {.times = {{"graph:eng1", 0}, {"graph:eng2", 0}}, .stock = 0});
  EXPECT_FALSE(Rows(data)[0].timed());
  EXPECT_EQ(Rows(data)[0].winner, Rows(data)[0].stock);
}

TEST(ReportData, TheStockChoicesTimeIsKeptHoweverFarBehindItIs) {
  std::vector<std::pair<std::string, double>> times;
  for (int i = 0; i < 40; ++i) times.emplace_back("graph:eng" + std::to_string(i), 10 + i);
  ReportData data;
  AddSample(&data, {.times = times, .stock = 39});
  EXPECT_EQ(Rows(data)[0].times.size(), ReportData::kKeptTimes + 1);
  EXPECT_FLOAT_EQ(Rows(data)[0].TimeOf(Rows(data)[0].stock)->median_us, 49);
}

TEST(ReportData, TheStockChoiceIsTheGraphApisWhereThereIsOne) {
  ReportData data;
  AddSample(&data, {.times = {{"legacy:algo1,math0", 10}, {"graph:eng2", 12}}, .stock = 0});
  AddSample(&data, {.times = {{"legacy:algo1,math0", 10}, {"legacy:algo6,math0", 12}},
                    .stock = 1,
                    .problem = SampleProblem(1)});
  const auto stock = [&data](size_t row) {
    return data.candidates()[static_cast<size_t>(Rows(data)[row].stock)];
  };
  EXPECT_EQ(stock(0), "graph:eng2");
  EXPECT_EQ(stock(1), "legacy:algo6,math0");
}

TEST(ReportData, ANewerRowOfTheSameGpuTakesTheOldersPlace) {
  ReportData data;
  AddSample(&data, {.times = {{"graph:eng1", 10}}, .day = 2});
  AddSample(&data, {.times = {{"graph:eng1", 20}}, .day = 1});
  AddSample(&data, {.times = {{"graph:eng1", 30}}, .day = 3});
  AddSample(&data, {.times = {{"graph:eng1", 40}}, .node = "b"});
  ASSERT_EQ(Rows(data).size(), 2U);
  EXPECT_FLOAT_EQ(Rows(data)[0].times[0].median_us, 30);
}

TEST(ReportData, FiltersLeaveRowsOut) {
  const auto rows = [](const ReportFilter& filter) {
    ReportData data(filter);
    AddSample(&data, {});
    return Rows(data).size();
  };
  EXPECT_EQ(rows({}), 1U);
  EXPECT_EQ(rows({.gpu = "H200"}), 1U);
  EXPECT_EQ(rows({.gpu = "nvidia-h2"}), 1U);
  EXPECT_EQ(rows({.gpu = "A100"}), 0U);
  EXPECT_EQ(rows({.problem = "64x64x3x3"}), 1U);
  EXPECT_EQ(rows({.problem = "65x64"}), 0U);
  EXPECT_EQ(rows({.operation = Operation::kBwdData}), 0U);
  EXPECT_EQ(rows({.data_type = DataType::kF32}), 0U);
  EXPECT_EQ(rows({.layout = TensorLayout::kNhwc}), 1U);
}

TEST(ReportData, TextsThatAreNoProblemAreLeftOut) {
  ReportData data;
  AddSample(&data, {.problem = "fwd,nonsense"});
  data.AddWanted({.problem = "nonsense", .environment = "nvidia-h200", .misses = 3});
  EXPECT_TRUE(Rows(data).empty());
  EXPECT_TRUE(data.Wanted().empty());
}

TEST(ReportData, WantedProblemsAddUpMostWantedFirst) {
  ReportData data;
  data.AddWanted({.problem = SampleProblem(1), .environment = "e", .misses = 3});
  data.AddWanted({.problem = SampleProblem(2), .environment = "e", .misses = 4});
  data.AddWanted({.problem = SampleProblem(1), .environment = "e", .misses = 5, .last_error = "x"});
  const std::vector<ReportWanted> wanted = data.Wanted();
  ASSERT_EQ(wanted.size(), 2U);
  EXPECT_EQ(wanted[0].problem, SampleProblem(1));
  EXPECT_EQ(wanted[0].misses, 8);
  EXPECT_EQ(wanted[0].nodes, 2);
  EXPECT_EQ(wanted[0].last_error, "x");
}

TEST(EngineOf, LeavesKnobsAndTheApiAway) {
  EXPECT_EQ(EngineOf("graph:eng62,k2=5,k13=1"), "eng62");
  EXPECT_EQ(EngineOf("legacy:algo1,math2"), "legacy:algo1");
}

}  // namespace
}  // namespace convtune::report

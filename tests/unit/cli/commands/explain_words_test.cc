#include "client/cli/commands/explain/explain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_join.h"

namespace convtune::cli::commands {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

v1::Candidate Timed(const std::string& text, double median, double spread, int64_t workspace) {
  v1::Candidate candidate;
  candidate.set_text(text);
  candidate.set_status(v1::CANDIDATE_STATUS_TIMED);
  candidate.set_median_us(median);
  candidate.set_q1_us(median - spread);
  candidate.set_q3_us(median + spread);
  candidate.set_low_us(median - spread);
  candidate.set_high_us(median + spread);
  candidate.set_workspace_bytes(workspace);
  candidate.set_deterministic(true);
  candidate.set_heuristic_rank(-1);
  return candidate;
}

std::string Explain(const v1::Candidate& winner, const std::vector<v1::Candidate>& all,
                    v1::Answer answer = {}, v1::Api api = v1::API_ANY) {
  *answer.mutable_winner() = winner;
  google::protobuf::RepeatedPtrField<v1::Candidate> candidates;
  for (const v1::Candidate& candidate : all) *candidates.Add() = candidate;
  return absl::StrJoin(explain::ExplainWinner(answer, candidates, api), "\n");
}

TEST(ExplainWinnerTest, TheFastestIsComparedWithTheNext) {
  const v1::Candidate a = Timed("a", 10, 0.1, 0);
  const v1::Candidate b = Timed("b", 12, 0.1, 0);
  EXPECT_THAT(Explain(a, {a, b}), HasSubstr("10.0 us, 20.0% ahead of b (12.0 us)"));
}

TEST(ExplainWinnerTest, ATieNamesWhatDecided) {
  const v1::Candidate a = Timed("a", 10, 1, 1 << 20);
  const v1::Candidate b = Timed("b", 10.5, 1, 0);
  const std::string words = Explain(b, {a, b});
  EXPECT_THAT(words, HasSubstr("ties with a"));
  EXPECT_THAT(words, HasSubstr("less workspace (0 against 1 MiB)"));
}

TEST(ExplainWinnerTest, ATieNamesTheHostsTimeFirst) {
  v1::Candidate a = Timed("a", 10, 1, 0);
  v1::Candidate b = Timed("b", 10.5, 1, 1 << 20);
  a.set_host_us(9);
  b.set_host_us(6);
  const std::string words = Explain(b, {a, b});
  EXPECT_THAT(words, HasSubstr("launching it takes the host less time (6.0 us against 9.0 us)"));
}

TEST(ExplainWinnerTest, TheStockChoiceIsTheYardstick) {
  const v1::Candidate a = Timed("a", 10, 0.1, 0);
  v1::Candidate b = Timed("b", 25, 0.1, 0);
  b.set_heuristic_rank(0);
  EXPECT_THAT(Explain(a, {a, b}), HasSubstr("would have run b (25.0 us): 2.50 times"));
}

TEST(ExplainWinnerTest, LegacyCallersAreToldOfTheLegacyStockChoice) {
  v1::Candidate winner = Timed("legacy:algo1,math0", 10, 0.1, 0);
  winner.mutable_legacy_algorithm();
  winner.set_heuristic_rank(1);
  v1::Candidate first = Timed("legacy:algo6,math0", 15, 0.1, 0);
  first.mutable_legacy_algorithm();
  first.set_heuristic_rank(0);
  v1::Candidate graph = Timed("graph:eng1", 25, 0.1, 0);
  graph.set_heuristic_rank(0);
  EXPECT_THAT(
      Explain(winner, {winner, first, graph}, {}, v1::API_LEGACY),
      HasSubstr("cuDNN's legacy heuristic would have run legacy:algo6,math0 (15.0 us): 1.50"));
  EXPECT_THAT(Explain(winner, {winner, first, graph}),
              HasSubstr("cuDNN's heuristic would have run graph:eng1 (25.0 us): 2.50"));
}

TEST(StockOfTest, CallersOfTheLegacyApiHaveTheFirstThatRanOfItsList) {
  google::protobuf::RepeatedPtrField<v1::Candidate> candidates;
  v1::Candidate& graph = *candidates.Add() = Timed("graph:eng1", 25, 0.1, 0);
  graph.set_heuristic_rank(0);
  v1::Candidate& failed = *candidates.Add();
  failed.set_text("legacy:algo6,math0");
  failed.mutable_legacy_algorithm();
  failed.set_heuristic_rank(0);
  failed.set_status(v1::CANDIDATE_STATUS_FAILED);
  v1::Candidate& unlisted = *candidates.Add() = Timed("legacy:algo0,math0", 5, 0.1, 0);
  unlisted.mutable_legacy_algorithm();
  EXPECT_EQ(explain::StockOf(candidates, v1::API_LEGACY), nullptr);
  v1::Candidate& second = *candidates.Add() = Timed("legacy:algo1,math0", 10, 0.1, 0);
  second.mutable_legacy_algorithm();
  second.set_heuristic_rank(1);
  ASSERT_NE(explain::StockOf(candidates, v1::API_LEGACY), nullptr);
  EXPECT_EQ(explain::StockOf(candidates, v1::API_LEGACY)->text(), "legacy:algo1,math0");
  EXPECT_EQ(explain::StockOf(candidates, v1::API_ANY)->text(), "graph:eng1");
}

TEST(ExplainWinnerTest, AHeuristicIsCalledOne) {
  v1::Candidate skipped;
  skipped.set_text("graph:eng0");
  skipped.set_status(v1::CANDIDATE_STATUS_UNSUPPORTED);
  skipped.set_heuristic_rank(0);
  v1::Candidate winner;
  winner.set_text("graph:eng1");
  winner.set_status(v1::CANDIDATE_STATUS_FINALIZED);
  winner.set_heuristic_rank(1);
  const std::string words = Explain(winner, {winner, skipped});
  EXPECT_THAT(words, HasSubstr("Nothing was timed"));
  EXPECT_THAT(words, HasSubstr("at place 2; 1 of those before it"));
}

TEST(ExplainWinnerTest, APinSaysItsReason) {
  v1::Answer answer;
  answer.set_pinned(true);
  answer.set_pin_reason("bit-exact release");
  const v1::Candidate a = Timed("a", 10, 0.1, 0);
  const v1::Candidate b = Timed("b", 5, 0.1, 0);
  EXPECT_THAT(Explain(a, {b, a}, answer), HasSubstr("pinned: bit-exact release"));
}

TEST(ExplainRaceTest, SaysWhyItEndedAndHowTheCardWas) {
  v1::Tuning tuning;
  EXPECT_TRUE(explain::ExplainRace(tuning).empty());
  tuning.set_stop_reason(v1::STOP_REASON_SETTLED);
  tuning.set_rounds(93);
  EXPECT_EQ(absl::StrJoin(explain::ExplainRace(tuning), "\n"),
            "race: 93 rounds, until every finalist is known to be slower than the fastest, or as "
            "fast\nGPU: not known (NVML could not be asked)");
  tuning.set_rounds(1);
  EXPECT_THAT(explain::ExplainRace(tuning)[0], StartsWith("race: 1 round, until"));
  tuning.mutable_conditions()->set_known(true);
  tuning.mutable_conditions()->set_temperature_celsius(61);
  tuning.mutable_conditions()->set_power_limit_watts(700);
  tuning.mutable_conditions()->add_clock_reasons(v1::CLOCK_REASON_POWER_CAP);
  EXPECT_EQ(
      explain::ExplainRace(tuning)[1],
      "GPU: no other process was seen, not throttled; at most 61 C; power limit 700 W; clocks "
      "held by power cap");
  tuning.mutable_conditions()->add_marks("contended: 2 other processes on the GPU");
  EXPECT_THAT(explain::ExplainRace(tuning)[1],
              StartsWith("GPU: contended: 2 other processes on the GPU; "));
}

TEST(ExplainRaceTest, SaysHowTheRunsWent) {
  v1::Tuning tuning;
  tuning.mutable_conditions()->set_retried_runs(2);
  tuning.mutable_conditions()->set_unblocked("launches, after eng1, eng2, eng3 gave up");
  EXPECT_EQ(absl::StrJoin(explain::ExplainRace(tuning), "\n"),
            "no blocking kernels before launches, after eng1, eng2, eng3 gave up\n"
            "runs that failed and were tried once more: 2");
}

TEST(ExplainRaceTest, SaysWhichInstrumentsDoNotWorkAlsoWhereNothingWasTimed) {
  v1::Tuning tuning;
  tuning.mutable_conditions()->mutable_self_check()->set_known(true);
  EXPECT_TRUE(explain::ExplainRace(tuning).empty());
  tuning.mutable_conditions()->mutable_self_check()->add_failed("clock");
  tuning.mutable_conditions()->mutable_self_check()->add_failed("caches");
  EXPECT_EQ(absl::StrJoin(explain::ExplainRace(tuning), "\n"),
            "self-check: does not work on this GPU: clock, caches");
}

}  // namespace
}  // namespace convtune::cli::commands

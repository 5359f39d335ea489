// Results that are checked before candidates are timed.
#include "gmock/gmock.h"
#include "proto/base/clock.h"
#include "proto/model/tuning/conditions.h"
#include "tests/unit/tuner/tuner_fixture.h"

namespace convtune::tuner {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ChecksTest : public TunerTest {
 protected:
  Candidate Find(const std::string& text) {
    for (const Candidate& candidate : Tuned().candidates) {
      if (ToText(candidate.id) == text) return candidate;
    }
    ADD_FAILURE() << text;
    return {};
  }
  v1::BatchGetResult Ask(const Constraints& constraints) {
    lookup::LookupRequest request = Request({Problem(1)}, jobs::OnMiss::kNone);
    request.demand.constraints = constraints;
    return Lookup(std::move(request))->results.at(0).row;
  }
};

TEST_F(ChecksTest, TheErrorIsKeptAndAConstraint) {
  TuneOn("");
  EXPECT_EQ(Find("graph:eng2,k2=2").error.value(), 3e-4F);
  Constraints constraints;
  constraints.max_error = 1.5e-4;
  const auto outcome = Ask(constraints);
  ASSERT_TRUE(outcome.has_answer());
  EXPECT_EQ(outcome.answer().winner().text(), "graph:eng0,k2=0");
  EXPECT_EQ(outcome.answer().eligible_count(), 1);
  constraints.max_error = 0.5e-4;
  EXPECT_TRUE(Ask(constraints).has_miss());
}

TEST_F(ChecksTest, AWrongResultIsQuarantinedAndNotTriedAgain) {
  TuneOn("wrong=2");
  EXPECT_EQ(Find("graph:eng2,k2=2").status, CandidateStatus::kQuarantined);
  EXPECT_THAT(Find("graph:eng2,k2=2").error_message, HasSubstr("differs from the reference by 1"));
  const auto quarantine = store_.ListQuarantine().value();
  ASSERT_EQ(quarantine.size(), 1U);
  EXPECT_EQ(ToText(quarantine[0].candidate), "graph:eng2,k2=2");
  EXPECT_EQ(quarantine[0].reason, QuarantineReason::kWrongResult);
  EXPECT_EQ(quarantine[0].checker_version, 1);
  EXPECT_EQ(Tuned().evidence, Evidence::kMeasured);
  EXPECT_EQ(tuner_->ListDevices().at(0).worker_deaths(), 0);

  TuneOn("");
  EXPECT_EQ(Find("graph:eng2,k2=2").status, CandidateStatus::kQuarantined);
}

TEST_F(ChecksTest, WhatIsNotFiniteOrOutOfBoundsIsQuarantined) {
  TuneOn("nonfinite=1;overwrites=3");
  EXPECT_THAT(Find("graph:eng1,k2=1").error_message, HasSubstr("3 elements"));
  EXPECT_THAT(Find("graph:eng3,k2=3").error_message, HasSubstr("4 bytes behind its end"));
  const auto quarantine = store_.ListQuarantine().value();
  ASSERT_EQ(quarantine.size(), 2U);
  EXPECT_EQ(quarantine[0].reason, QuarantineReason::kNotFinite);
  EXPECT_EQ(quarantine[1].reason, QuarantineReason::kOutOfBounds);
}

TEST_F(ChecksTest, AWorkerThatChecksInAnotherWayTriesAgain) {
  TuneOn("wrong=2");
  ASSERT_EQ(store_.ListQuarantine()->size(), 1U);
  TuneOn("checker_version=2");
  EXPECT_EQ(Find("graph:eng2,k2=2").status, CandidateStatus::kTimed);
  EXPECT_THAT(*store_.ListQuarantine(), IsEmpty());
  // A candidate that is wrong again is quarantined for its version.
  TuneOn("checker_version=3;wrong=2");
  ASSERT_EQ(store_.ListQuarantine()->size(), 1U);
  EXPECT_EQ(store_.ListQuarantine()->at(0).checker_version, 3);
}

TEST_F(ChecksTest, AWorkerThatMeasuresNothingLiftsNoQuarantine) {
  TuneOn("wrong=2");
  ASSERT_EQ(store_.ListQuarantine()->size(), 1U);
  // Its clocks do not agree, so that it builds plans and runs none of them.
  TuneOn(absl::StrCat("checker_version=2;self_check=", static_cast<int>(SelfCheckBit::kClock)));
  EXPECT_EQ(store_.ListQuarantine()->size(), 1U);
}

TEST_F(ChecksTest, AWrongResultIsTakenOutOfATuningThatStays) {
  TuneOn("");
  EXPECT_EQ(Find("graph:eng2,k2=2").status, CandidateStatus::kTimed);
  // Contended: what it measures does not replace what is there.
  TuneOn("wrong=2;other_processes=1");
  EXPECT_EQ(Tuned().evidence, Evidence::kMeasured);
  EXPECT_EQ(Find("graph:eng2,k2=2").status, CandidateStatus::kQuarantined);
  const auto outcome = Ask({});
  ASSERT_TRUE(outcome.has_answer());
  EXPECT_NE(outcome.answer().winner().text(), "graph:eng2,k2=2");
}

TEST_F(ChecksTest, WhereAllDifferNobodyIsBlamedAndTheHeuristicAnswers) {
  TuneOn("wrong=-2");
  EXPECT_THAT(*store_.ListQuarantine(), IsEmpty());
  const Tuning tuning = Tuned();
  EXPECT_EQ(tuning.evidence, Evidence::kHeuristic);
  EXPECT_TRUE(tuning.has(IncompleteReason::kUnjudged));
  EXPECT_THAT(tuning.incomplete_message, HasSubstr("no result could be judged"));
  EXPECT_EQ(Requests("measure"), 0);
  // cuDNN's first choice, which programs run anyway, is the only answer.
  EXPECT_EQ(ToText(tuning.candidates[0].id), "graph:eng0,k2=0");
  EXPECT_EQ(Find("graph:eng1,k2=1").status, CandidateStatus::kUnjudged);
  const auto outcome = Ask({});
  ASSERT_TRUE(outcome.has_answer());
  EXPECT_EQ(outcome.answer().evidence(), v1::EVIDENCE_HEURISTIC);
  EXPECT_EQ(outcome.answer().eligible_count(), 1);
}

TEST_F(ChecksTest, WhatMoreThanAQuarterOfTheEnginesHaveIsNotBelieved) {
  TuneOn("wrong_from=5");
  EXPECT_THAT(*store_.ListQuarantine(), IsEmpty());
  EXPECT_EQ(Tuned().evidence, Evidence::kIncomplete);
  EXPECT_EQ(Tuned().incomplete_reasons, ReasonBit(IncompleteReason::kSomeUnjudged));
  EXPECT_THAT(Tuned().incomplete_message, HasSubstr("could not be judged: 3 candidates"));
  EXPECT_EQ(Find("graph:eng4,k2=0").status, CandidateStatus::kTimed);
  EXPECT_EQ(Find("graph:eng5,k2=1").status, CandidateStatus::kUnjudged);
  EXPECT_THAT(Find("graph:eng5,k2=1").error_message, HasSubstr("differs from the reference"));
  // Another tuning tries them again.
  TuneOn("");
  EXPECT_EQ(Tuned().evidence, Evidence::kMeasured);
}

TEST_F(ChecksTest, AStockChoiceIsNotQuarantinedButWhatIsFasterStillWins) {
  TuneOn("wrong=0");
  EXPECT_THAT(*store_.ListQuarantine(), IsEmpty());
  const Tuning tuning = Tuned();
  EXPECT_EQ(tuning.evidence, Evidence::kIncomplete);
  EXPECT_EQ(tuning.incomplete_reasons, ReasonBit(IncompleteReason::kSomeUnjudged) |
                                           ReasonBit(IncompleteReason::kGraphStockUnjudged));
  // It is what the others are compared with.
  EXPECT_EQ(Find("graph:eng0,k2=0").status, CandidateStatus::kTimed);
}

TEST_F(ChecksTest, AFaultOfAWholeApiIsNotBelieved) {
  TuneOn("legacy=2;wrong_from=8");
  EXPECT_THAT(*store_.ListQuarantine(), IsEmpty());
  EXPECT_TRUE(Tuned().has(IncompleteReason::kLegacyStockUnjudged));
  EXPECT_FALSE(Tuned().has(IncompleteReason::kGraphStockUnjudged));
}

TEST_F(ChecksTest, ATuningThatLosesItsStockChoiceSaysSo) {
  TuneOn("fault=segv;where=check;index=0");
  EXPECT_EQ(store_.ListQuarantine()->size(), 1U);
  EXPECT_EQ(Tuned().evidence, Evidence::kIncomplete);
  EXPECT_EQ(Tuned().incomplete_reasons, ReasonBit(IncompleteReason::kStockFailed));
}

TEST_F(ChecksTest, WhatIsHopelessIsTimedByItsFirstRunAndDoesNotRace) {
  TuneOn("hopeless=3");
  const Candidate slow = Find("graph:eng3,k2=3");
  EXPECT_EQ(slow.status, CandidateStatus::kTimed);
  EXPECT_EQ(slow.sample_count, 1);
  EXPECT_EQ(slow.median_us, 90'000);
  EXPECT_EQ(slow.low_us, 90'000);
  EXPECT_EQ(slow.capture, CaptureSupport::kUnknown);
  EXPECT_THAT(slow.other_times, IsEmpty());
  EXPECT_EQ(Tuned().candidates.back().id, slow.id);
  EXPECT_EQ(Tuned().evidence, Evidence::kMeasured);
  EXPECT_GT(Find("graph:eng2,k2=2").sample_count, 1);
}

TEST_F(ChecksTest, ASearchThatWasLeftOutForTheSizeOfTheProblemIsSaid) {
  TuneOn("legacy=3;find_left_out=1");
  EXPECT_EQ(Tuned().evidence, Evidence::kIncomplete);
  EXPECT_TRUE(Tuned().has(IncompleteReason::kFindLeftOut));
}

TEST_F(ChecksTest, ReplaysAreTimedOfWhatCanBeCapturedAndRankGraphLaunches) {
  TuneOn("host_us=500");
  EXPECT_EQ(Find("graph:eng0,k2=0").capture, CaptureSupport::kYes);
  EXPECT_EQ(Find("graph:eng1,k2=1").capture, CaptureSupport::kNo);
  Constraints constraints;
  constraints.launch = LaunchMode::kGraphCapture;
  const auto outcome = Ask(constraints);
  ASSERT_TRUE(outcome.has_answer());
  const v1::Answer& answer = outcome.answer();
  EXPECT_EQ(answer.winner().capture(), v1::CAPTURE_SUPPORT_YES);
  EXPECT_LT(answer.winner().median_us(), 200);
  EXPECT_EQ(answer.winner().host_us(), 0);  // 500 is the time of launches from a stream
  EXPECT_THAT(answer.note(), IsEmpty());
}

TEST_F(ChecksTest, FinalistsAreTimedAsReplaysAndWithColdCaches) {
  TuneOn("candidates=2");
  EXPECT_EQ(Tuned().cache_state, CacheState::kInputHot);
  // Of the two this one can be captured.
  const Candidate candidate = Find("graph:eng0,k2=0");
  ASSERT_EQ(candidate.other_times.size(), 2U);
  const TimeSummary& cold = candidate.other_times[0];
  EXPECT_EQ(cold.launch, LaunchMode::kEager);
  EXPECT_EQ(cold.cache_state, CacheState::kCold);
  EXPECT_EQ(cold.sample_count, 10);
  EXPECT_NEAR(cold.median_us, candidate.median_us + 10, 1);
  EXPECT_EQ(candidate.other_times[1].launch, LaunchMode::kGraphCapture);
  EXPECT_EQ(candidate.other_times[1].cache_state, CacheState::kInputHot);
}

TEST_F(ChecksTest, OnRequestFinalistsAreTimedInAllWays) {
  Start("candidates=2");
  jobs::JobRequest request;
  request.problems = {Problem(1)};
  request.demand.options.all_timings = true;
  EXPECT_EQ(RunJob(request).state(), v1::JOB_STATE_SUCCEEDED);
  const Candidate candidate = Find("graph:eng0,k2=0");
  std::vector<CacheState> eager, replays;
  for (const TimeSummary& time : candidate.other_times) {
    (time.launch == LaunchMode::kEager ? eager : replays).push_back(time.cache_state);
  }
  EXPECT_THAT(eager, ElementsAre(CacheState::kCold, CacheState::kHot));
  EXPECT_THAT(replays, ElementsAre(CacheState::kCold, CacheState::kInputHot, CacheState::kHot));
  EXPECT_NEAR(candidate.other_times[1].median_us, candidate.median_us - 5, 1);
}

TEST_F(ChecksTest, SamplesWithAndWithoutAHoldAreNotMixed) {
  const Candidate winner = TuneOn("candidates=2;unblocked_from=9").candidates[0];
  ASSERT_FALSE(winner.other_times.empty());
  for (const TimeSummary& time : winner.other_times) {
    EXPECT_EQ(time.sample_count, 9);
    EXPECT_LT(time.high_us, 1000);
  }
  const Candidate again = TuneOn("candidates=2;unblocked_from=2").candidates[0];
  ASSERT_FALSE(again.other_times.empty());
  for (const TimeSummary& time : again.other_times) {
    EXPECT_EQ(time.sample_count, 8);
    EXPECT_GT(time.low_us, 1000);
  }
}

TEST_F(ChecksTest, WhoseSamplesDoNotCompareWithTheOthersIsNoAnswer) {
  for (const Candidate& candidate :
       TuneOn("candidates=4;unblocked_from=0;unblocked_index=2").candidates) {
    if (ToText(candidate.id) == "graph:eng2,k2=2") {
      EXPECT_EQ(candidate.status, CandidateStatus::kFailed);
      EXPECT_THAT(candidate.error_message, HasSubstr("behind a blocking kernel"));
      EXPECT_THAT(candidate.other_times, IsEmpty());
    } else {
      EXPECT_TRUE(candidate.timed());
      EXPECT_LT(candidate.high_us, 1000);
    }
  }
}

TEST_F(ChecksTest, WhereNothingCanBeHeldAllAreComparedWithoutAHold) {
  for (const Candidate& candidate : TuneOn("candidates=4;unblocked_from=0").candidates) {
    EXPECT_TRUE(candidate.timed());
    EXPECT_GT(candidate.low_us, 1000);
  }
}

TEST_F(ChecksTest, WhoIsSlowToLaunchWinsAllTheSameWhereTheGpuIsFasterWithIt) {
  TuneOn("");
  const auto before = Ask({});
  ASSERT_TRUE(before.has_answer());
  const v1::Candidate& fastest = before.answer().winner();
  const int64_t index = fastest.engine_config().engine_index();
  TuneOn(absl::StrCat("host_us=5000;slow_host=", index));
  EXPECT_EQ(Find(fastest.text()).host_us, 5000);
  const auto after = Ask({});
  ASSERT_TRUE(after.has_answer());
  EXPECT_EQ(after.answer().winner().text(), fastest.text());
}

TEST_F(ChecksTest, WhereTheFirstSampleHangsTheirTimesAreTheAnswer) {
  options_.hang_timeout = absl::Milliseconds(500);
  Start("fault=hang;where=measure;index=0");
  EXPECT_EQ(RunJob(Within(absl::Milliseconds(400))).state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(Tuned().evidence, Evidence::kIncomplete);
  EXPECT_EQ(Tuned().stop_reason, StopReason::kBudget);
  EXPECT_TRUE(Tuned().candidates[0].timed());
  EXPECT_EQ(Tuned().candidates[0].sample_count, 1);
}

}  // namespace
}  // namespace convtune::tuner

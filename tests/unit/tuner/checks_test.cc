// Results that are checked before candidates are timed.
#include "gmock/gmock.h"
#include "tests/unit/tuner/tuner_fixture.h"

namespace convtune {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ChecksTest : public TunerTest {
 protected:
  Tuning Tuned() { return tuner_->GetTuning("", Problem(1)).value(); }
  Candidate Find(const std::string& text) {
    for (const Candidate& candidate : Tuned().candidates) {
      if (ToText(candidate.id) == text) return candidate;
    }
    ADD_FAILURE() << text;
    return {};
  }
  std::variant<Answer, Miss> Ask(const Constraints& constraints) {
    LookupRequest request = Request({Problem(1)}, OnMiss::kNone);
    request.constraints = constraints;
    return Lookup(std::move(request))->results.at(0).outcome;
  }
};

TEST_F(ChecksTest, TheErrorIsKeptAndAConstraint) {
  Start("");
  EXPECT_EQ(Tune({Problem(1)}).state, JobState::kSucceeded);
  EXPECT_DOUBLE_EQ(Find("graph:eng2,k2=2").error.value(), 3e-4);
  Constraints constraints;
  constraints.max_error = 1.5e-4;
  const auto outcome = Ask(constraints);
  ASSERT_TRUE(std::holds_alternative<Answer>(outcome));
  EXPECT_EQ(ToText(std::get<Answer>(outcome).winner.id), "graph:eng0,k2=0");
  EXPECT_EQ(std::get<Answer>(outcome).eligible_count, 1);
  constraints.max_error = 0.5e-4;
  EXPECT_TRUE(std::holds_alternative<Miss>(Ask(constraints)));
}

TEST_F(ChecksTest, AWrongResultIsQuarantinedAndNotTriedAgain) {
  Start("wrong=2");
  EXPECT_EQ(Tune({Problem(1)}).state, JobState::kSucceeded);
  EXPECT_EQ(Find("graph:eng2,k2=2").status, CandidateStatus::kQuarantined);
  EXPECT_THAT(Find("graph:eng2,k2=2").error_message, HasSubstr("differs from the reference by 1"));
  const auto quarantine = store_.ListQuarantine().value();
  ASSERT_EQ(quarantine.size(), 1U);
  EXPECT_EQ(ToText(quarantine[0].candidate), "graph:eng2,k2=2");
  EXPECT_EQ(Tuned().evidence, Evidence::kMeasured);
  EXPECT_EQ(tuner_->ListDevices().at(0).worker_deaths, 0);

  tuner_->Drain(absl::Now());
  options_.devices.clear();
  Start("");
  EXPECT_EQ(Tune({Problem(1)}, /*force=*/true).state, JobState::kSucceeded);
  EXPECT_EQ(Find("graph:eng2,k2=2").status, CandidateStatus::kQuarantined);
}

TEST_F(ChecksTest, WhatIsNotFiniteOrOutOfBoundsIsQuarantined) {
  Start("nonfinite=1;overwrites=3");
  EXPECT_EQ(Tune({Problem(1)}).state, JobState::kSucceeded);
  EXPECT_THAT(Find("graph:eng1,k2=1").error_message, HasSubstr("3 elements"));
  EXPECT_THAT(Find("graph:eng3,k2=3").error_message, HasSubstr("4 bytes behind its end"));
  EXPECT_EQ(store_.ListQuarantine()->size(), 2U);
}

TEST_F(ChecksTest, AWrongResultIsTakenOutOfATuningThatStays) {
  Start("");
  EXPECT_EQ(Tune({Problem(1)}).state, JobState::kSucceeded);
  EXPECT_EQ(Find("graph:eng0,k2=0").status, CandidateStatus::kTimed);
  tuner_->Drain(absl::Now());
  options_.devices.clear();
  // Contended: what it measures does not replace what is there.
  Start("wrong=0;other_processes=1");
  EXPECT_EQ(Tune({Problem(1)}, /*force=*/true).state, JobState::kSucceeded);
  EXPECT_EQ(Tuned().evidence, Evidence::kMeasured);
  EXPECT_EQ(Find("graph:eng0,k2=0").status, CandidateStatus::kQuarantined);
  const auto outcome = Ask({});
  ASSERT_TRUE(std::holds_alternative<Answer>(outcome));
  EXPECT_NE(ToText(std::get<Answer>(outcome).winner.id), "graph:eng0,k2=0");
}

TEST_F(ChecksTest, WhereMostDifferNobodyIsBlamed) {
  Start("wrong=-2");
  EXPECT_EQ(Tune({Problem(1)}).state, JobState::kSucceeded);
  EXPECT_THAT(*store_.ListQuarantine(), IsEmpty());
  EXPECT_EQ(Tuned().evidence, Evidence::kIncomplete);
  EXPECT_THAT(Tuned().incomplete_reason, HasSubstr("8 of 8 candidates differ from the reference"));
}

TEST_F(ChecksTest, WhatIsHopelessIsTimedByItsFirstRunAndDoesNotRace) {
  Start("hopeless=3");
  EXPECT_EQ(Tune({Problem(1)}).state, JobState::kSucceeded);
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
  Start("legacy=3;find_left_out=1");
  EXPECT_EQ(Tune({Problem(1)}).state, JobState::kSucceeded);
  EXPECT_EQ(Tuned().evidence, Evidence::kIncomplete);
  EXPECT_THAT(Tuned().incomplete_reason, HasSubstr("too large for cudnnFind"));
}

TEST_F(ChecksTest, ReplaysAreTimedOfWhatCanBeCapturedAndRankGraphLaunches) {
  Start("host_us=500");
  EXPECT_EQ(Tune({Problem(1)}).state, JobState::kSucceeded);
  EXPECT_EQ(Find("graph:eng0,k2=0").capture, CaptureSupport::kYes);
  EXPECT_EQ(Find("graph:eng1,k2=1").capture, CaptureSupport::kNo);
  Constraints constraints;
  constraints.launch = LaunchMode::kGraphCapture;
  const auto outcome = Ask(constraints);
  ASSERT_TRUE(std::holds_alternative<Answer>(outcome));
  const Answer& answer = std::get<Answer>(outcome);
  EXPECT_EQ(answer.winner.capture, CaptureSupport::kYes);
  EXPECT_LT(answer.winner.median_us, 200);
  EXPECT_EQ(answer.winner.host_us, 0);  // 500 is the time of launches from a stream
  EXPECT_THAT(answer.note, IsEmpty());
}

TEST_F(ChecksTest, FinalistsAreTimedAsReplaysAndWithColdCaches) {
  Start("candidates=2");
  EXPECT_EQ(Tune({Problem(1)}).state, JobState::kSucceeded);
  EXPECT_EQ(Tuned().cache_state, CacheState::kInputHot);
  // Of the two this one can be captured.
  const Candidate candidate = Find("graph:eng0,k2=0");
  ASSERT_EQ(candidate.other_times.size(), 2U);
  const TimeSummary& cold = candidate.other_times[0];
  EXPECT_EQ(cold.launch, LaunchMode::kEager);
  EXPECT_EQ(cold.cache_state, CacheState::kCold);
  EXPECT_EQ(cold.sample_count, 15);
  EXPECT_NEAR(cold.median_us, candidate.median_us + 10, 1);
  EXPECT_EQ(candidate.other_times[1].launch, LaunchMode::kGraphCapture);
  EXPECT_EQ(candidate.other_times[1].cache_state, CacheState::kInputHot);
}

TEST_F(ChecksTest, OnRequestFinalistsAreTimedInAllWays) {
  Start("candidates=2");
  JobRequest request;
  request.problems = {Problem(1)};
  request.options.all_timings = true;
  EXPECT_EQ(WaitFor(tuner_->CreateJob(request)->name).state, JobState::kSucceeded);
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
  Start("candidates=2;unheld_from=9");
  EXPECT_EQ(Tune({Problem(1)}).state, JobState::kSucceeded);
  const Candidate winner = Tuned().candidates[0];
  ASSERT_FALSE(winner.other_times.empty());
  for (const TimeSummary& time : winner.other_times) {
    EXPECT_EQ(time.sample_count, 9);
    EXPECT_LT(time.high_us, 1000);
  }
  tuner_->Drain(absl::Now());
  options_.devices.clear();
  Start("candidates=2;unheld_from=6");
  EXPECT_EQ(Tune({Problem(1)}, /*force=*/true).state, JobState::kSucceeded);
  const Candidate again = Tuned().candidates[0];
  ASSERT_FALSE(again.other_times.empty());
  for (const TimeSummary& time : again.other_times) {
    EXPECT_EQ(time.sample_count, 9);
    EXPECT_GT(time.low_us, 1000);
  }
}

TEST_F(ChecksTest, WhoseSamplesDoNotCompareWithTheOthersIsNoAnswer) {
  Start("candidates=4;unheld_from=0;unheld_index=2");
  EXPECT_EQ(Tune({Problem(1)}).state, JobState::kSucceeded);
  for (const Candidate& candidate : Tuned().candidates) {
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
  Start("candidates=4;unheld_from=0");
  EXPECT_EQ(Tune({Problem(1)}).state, JobState::kSucceeded);
  for (const Candidate& candidate : Tuned().candidates) {
    EXPECT_TRUE(candidate.timed());
    EXPECT_GT(candidate.low_us, 1000);
  }
}

TEST_F(ChecksTest, WhoIsSlowToLaunchWinsAllTheSameWhereTheGpuIsFasterWithIt) {
  Start("");
  EXPECT_EQ(Tune({Problem(1)}).state, JobState::kSucceeded);
  const auto before = Ask({});
  ASSERT_TRUE(std::holds_alternative<Answer>(before));
  const CandidateId fastest = std::get<Answer>(before).winner.id;
  const int64_t index = std::get<EngineConfig>(fastest).engine_index;
  tuner_->Drain(absl::Now());
  options_.devices.clear();
  Start(absl::StrCat("host_us=5000;slow_host=", index));
  EXPECT_EQ(Tune({Problem(1)}, /*force=*/true).state, JobState::kSucceeded);
  EXPECT_EQ(Find(ToText(fastest)).host_us, 5000);
  const auto after = Ask({});
  ASSERT_TRUE(std::holds_alternative<Answer>(after));
  EXPECT_EQ(ToText(std::get<Answer>(after).winner.id), ToText(fastest));
}

TEST_F(ChecksTest, WhereTheFirstSampleHangsTheirTimesAreTheAnswer) {
  options_.hang_timeout = absl::Milliseconds(500);
  Start("fault=hang;where=measure;index=0");
  JobRequest request;
  request.problems = {Problem(1)};
  request.options.time_budget = absl::Milliseconds(400);
  EXPECT_EQ(WaitFor(tuner_->CreateJob(request)->name).state, JobState::kSucceeded);
  EXPECT_EQ(Tuned().evidence, Evidence::kIncomplete);
  EXPECT_EQ(Tuned().stop_reason, StopReason::kBudget);
  EXPECT_TRUE(Tuned().candidates[0].timed());
  EXPECT_EQ(Tuned().candidates[0].sample_count, 1);
}

TEST_F(ChecksTest, TimesOfFirstRunsAreNone) {
  options_.hang_timeout = absl::Milliseconds(500);
  Start("fault=hang;where=measure;index=0;protocol_minor=3");
  JobRequest request;
  request.problems = {Problem(1)};
  request.options.time_budget = absl::Milliseconds(400);
  WaitFor(tuner_->CreateJob(request)->name);
  ASSERT_TRUE(tuner_->GetTuning("", Problem(1)).ok());
  for (const Candidate& candidate : Tuned().candidates) EXPECT_FALSE(candidate.timed());
}

TEST_F(ChecksTest, AnOlderWorkerIsTimedWithoutThem) {
  Start("protocol_minor=1;wrong=2");
  EXPECT_EQ(Tune({Problem(1)}).state, JobState::kSucceeded);
  EXPECT_EQ(Requests("check"), 0);
  EXPECT_EQ(Tuned().evidence, Evidence::kMeasured);
  EXPECT_EQ(Tuned().cache_state, CacheState::kHot);
  EXPECT_FALSE(Tuned().candidates[0].error.has_value());
}

}  // namespace
}  // namespace convtune

#include <signal.h>

#include <thread>

#include "gmock/gmock.h"
#include "proto/base/clock.h"
#include "proto/model/tuning/tuning.h"
#include "tests/unit/tuner/tuner_fixture.h"

namespace convtune::tuner {
namespace {

using ::testing::HasSubstr;

class FaultTest : public TunerTest {
 protected:
  int CountStatus(CandidateStatus status) {
    int count = 0;
    for (const Candidate& c : Tuned().candidates) count += c.status == status ? 1 : 0;
    return count;
  }
  v1::Device Device() { return tuner_->ListDevices().at(0); }
};

struct Fault {
  const char* kind;
  const char* reason;
};

class CandidateFault : public FaultTest,
                       public ::testing::WithParamInterface<std::tuple<Fault, const char*>> {};

TEST_P(CandidateFault, IsQuarantinedAndTheJobSucceedsWithoutIt) {
  const auto& [fault, where] = GetParam();
  AddDevice(absl::StrCat("index=2;fault=", fault.kind, ";where=", where));
  Start();
  EXPECT_EQ(RunJob(Within(absl::Seconds(1))).state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(CountStatus(CandidateStatus::kQuarantined), 1);
  EXPECT_EQ(CountStatus(CandidateStatus::kTimed), 7);
  const auto quarantine = store_.ListQuarantine().value();
  ASSERT_EQ(quarantine.size(), 1U);
  EXPECT_EQ(ToText(quarantine[0].candidate), "graph:eng2,k2=2");
  EXPECT_THAT(quarantine[0].message, HasSubstr(fault.reason));
  EXPECT_EQ(quarantine[0].reason, QuarantineReason::kCrashed);
  EXPECT_EQ(quarantine[0].checker_version, kCheckerVersion);
  EXPECT_EQ(Device().worker_deaths(), 2);
}

INSTANTIATE_TEST_SUITE_P(All, CandidateFault,
                         ::testing::Combine(::testing::Values(Fault{"segv", "signal 11 (SIGSEGV)"},
                                                              Fault{"abort", "signal 6 (SIGABRT)"},
                                                              Fault{"exit", "exit status 3"},
                                                              Fault{"garbage", "unreadable reply"}),
                                            ::testing::Values("prepare", "check", "measure")),
                         [](const auto& param_info) {
                           return std::string(std::get<0>(param_info.param).kind) + "_" +
                                  std::get<1>(param_info.param);
                         });

TEST_F(FaultTest, ASuspectIsTriedWithItsOwnApiAlone) {
  // Once in the listing that the suspect is found in, and never again.
  Start("fault=segv;index=2");
  EXPECT_EQ(Tune({Problem(1)}).state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(Requests("legacy_listing"), 2);
  EXPECT_EQ(Requests("open"), 3);
}

class HangingCandidate : public FaultTest, public ::testing::WithParamInterface<const char*> {};

TEST_P(HangingCandidate, DoesNotHoldUpTheAnswerAndIsQuarantinedAfterwards) {
  options_.hang_timeout = absl::Milliseconds(500);
  AddDevice(absl::StrCat("index=2;where=measure;fault=", GetParam()));
  Start();
  jobs::JobRequest request = Within(absl::Milliseconds(400));
  EXPECT_EQ(RunJob(request).state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(CountStatus(CandidateStatus::kTimed), 2);
  EXPECT_THAT(Tuned().incomplete_message, HasSubstr("while the worker was at one candidate"));
  ASSERT_TRUE(Eventually([this] { return store_.ListQuarantine()->size() == 1; }));
  EXPECT_EQ(ToText(store_.ListQuarantine()->at(0).candidate), "graph:eng2,k2=2");
  EXPECT_EQ(store_.ListQuarantine()->at(0).reason, QuarantineReason::kHung);
  EXPECT_EQ(store_.ListQuarantine()->at(0).hang_budget, absl::Milliseconds(400));
  EXPECT_THAT(store_.ListQuarantine()->at(0).message, HasSubstr("hung with a budget of 400ms"));
  request.demand.max_age = absl::ZeroDuration();
  EXPECT_EQ(RunJob(request).state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(CountStatus(CandidateStatus::kTimed), 7);
}

class HangWithinTheBudget : public FaultTest, public ::testing::WithParamInterface<const char*> {};

TEST_P(HangWithinTheBudget, IsNoticedFromTheLastSignOfLife) {
  options_.hang_timeout = absl::Seconds(1);
  Start(absl::StrCat("fault=hang;index=2;where=", GetParam()));
  const SteadyTime start = SteadyTime::Now();
  EXPECT_EQ(RunJob(Within(absl::Seconds(60))).state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_LT(SteadyTime::Now() - start, absl::Seconds(20));
  EXPECT_EQ(CountStatus(CandidateStatus::kTimed), 7);
  ASSERT_EQ(store_.ListQuarantine()->size(), 1U);
  EXPECT_EQ(store_.ListQuarantine()->at(0).reason, QuarantineReason::kHung);
  EXPECT_THAT(store_.ListQuarantine()->at(0).message, HasSubstr("no sign of life for 1s"));
}

INSTANTIATE_TEST_SUITE_P(All, HangWithinTheBudget, ::testing::Values("prepare", "check", "measure"),
                         [](const auto& param_info) { return std::string(param_info.param); });

INSTANTIATE_TEST_SUITE_P(All, HangingCandidate, ::testing::Values("hang", "flood"),
                         [](const auto& param_info) { return std::string(param_info.param); });

class LateFaultTest : public FaultTest {
 protected:
  // Tunes with a budget of 400 ms.
  v1::TuningJob TuneShortly(int n, absl::Duration budget = absl::Milliseconds(400)) {
    jobs::JobRequest request = Within(budget, n);
    request.demand.max_age = absl::ZeroDuration();
    return RunJob(request);
  }
};

TEST_F(LateFaultTest, ALongerBudgetTriesWhatHungAgainAndLiftsTheQuarantineIfItWasOnlySlow) {
  options_.hang_timeout = absl::Milliseconds(300);
  Start("index=2;where=prepare;fault=slow;slow_ms=1500");
  TuneShortly(1);
  ASSERT_TRUE(Eventually([this] { return store_.ListQuarantine()->size() == 1; }));
  EXPECT_EQ(TuneShortly(1).state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(CountStatus(CandidateStatus::kQuarantined), 1);
  tuner_->Drain(SteadyTime::Now());
  options_.hang_timeout = absl::Seconds(30);
  Start();
  EXPECT_EQ(TuneShortly(1, absl::Seconds(10)).state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(CountStatus(CandidateStatus::kTimed), 8);
  EXPECT_TRUE(store_.ListQuarantine()->empty());
}

TEST_F(LateFaultTest, DeletingATuningLiftsTheQuarantineOfItsCandidates) {
  Start(absl::StrCat("fault=segv;index=2;problem=", Problem(1).ToText()));
  Tune({Problem(1)});
  ASSERT_EQ(store_.ListQuarantine()->size(), 1U);
  ASSERT_TRUE(tuner_->DeleteTunings("", {Problem(2)}, /*only_from_fleet=*/false).ok());
  EXPECT_EQ(store_.ListQuarantine()->size(), 1U);
  ASSERT_TRUE(tuner_->DeleteTunings("", {Problem(1)}, /*only_from_fleet=*/false).ok());
  EXPECT_TRUE(store_.ListQuarantine()->empty());
  EXPECT_EQ(tuner_->Stats().quarantined, 0);
  Tune({Problem(1)});
  EXPECT_EQ(Device().worker_deaths(), 4);
}

TEST_F(LateFaultTest, AWithdrawalOfTheFleetTakesItsTuningAloneAndKeepsTheQuarantine) {
  Start(absl::StrCat("fault=segv;index=2;problem=", Problem(1).ToText()));
  Tune({Problem(1)});
  ASSERT_EQ(store_.ListQuarantine()->size(), 1U);
  EXPECT_EQ(*tuner_->DeleteTunings("", {Problem(1), Problem(2)}, /*only_from_fleet=*/true), 0);
  Tuning of_fleet = Tuned();
  bool given = false;
  const auto next = [&]() -> absl::StatusOr<std::optional<db::TuningRecord>> {
    if (std::exchange(given, true)) return std::nullopt;
    of_fleet.origin = Origin::kFleet;
    return db::TuningRecord{of_fleet, *Environment::Parse(of_fleet.key.environment_text)};
  };
  ASSERT_EQ(tuner_->ApplyFleetTunings(next)->taken_count(), 1);
  EXPECT_EQ(*tuner_->DeleteTunings("", {Problem(1), Problem(2)}, /*only_from_fleet=*/true), 1);
  EXPECT_TRUE(absl::IsNotFound(tuner_->GetTuning("", Problem(1)).status()));
  EXPECT_EQ(store_.ListQuarantine()->size(), 1U);
}

TEST_F(LateFaultTest, JudgingGivesWayToOtherWorkAndBlamesNobody) {
  options_.hang_timeout = absl::Seconds(3);
  options_.late_work_timeout = absl::Milliseconds(100);
  AddDevice(absl::StrCat("index=2;where=measure;fault=hang;problem=", Problem(1).ToText()));
  Start();
  EXPECT_EQ(TuneShortly(1).state(), v1::JOB_STATE_SUCCEEDED);
  // The judging begins when the worker that hung is given up.
  ASSERT_TRUE(Eventually([this] { return Device().worker_deaths() == 1; }));
  EXPECT_EQ(TuneShortly(2).state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_TRUE(store_.ListQuarantine()->empty());
}

TEST_F(LateFaultTest, DrainingEndsTheJudging) {
  options_.hang_timeout = absl::Seconds(3);
  Start("index=2;where=measure;fault=hang");
  EXPECT_EQ(TuneShortly(1).state(), v1::JOB_STATE_SUCCEEDED);
  ASSERT_TRUE(Eventually([this] { return Device().worker_deaths() == 1; }));
  tuner_->Drain(SteadyTime::Now() + absl::Hours(1));
  EXPECT_TRUE(store_.ListQuarantine()->empty());
}

TEST_F(LateFaultTest, ATuningWhoseWorkerDiedLateIsAnsweredAndTheSuspectJudgedBehindIt) {
  // It dies when the budget is nearly over: there is no time to try it alone.
  Start("index=7;where=measure;fault=slow_segv;slow_ms=1900");
  EXPECT_EQ(TuneShortly(1, absl::Seconds(2)).state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(CountStatus(CandidateStatus::kTimed), 7);
  EXPECT_EQ(CountStatus(CandidateStatus::kSkippedBudget), 1);
  EXPECT_EQ(Tuned().evidence, Evidence::kIncomplete);
  ASSERT_TRUE(Eventually([this] { return store_.ListQuarantine()->size() == 1; }));
  EXPECT_EQ(ToText(store_.ListQuarantine()->at(0).candidate), "graph:eng7,k2=3");
}

TEST_F(FaultTest, AnAnswerComesAtTheBudgetAlsoIfNothingIsKnownByThen) {
  Start("listing_delay_ms=1500");
  const v1::TuningJob job = RunJob(Within(absl::Milliseconds(200)));
  EXPECT_EQ(job.state(), v1::JOB_STATE_FAILED);
  ASSERT_EQ(job.failures_size(), 1);
  EXPECT_THAT(job.failures(0).reason(), HasSubstr("the budget ended, and no candidate ran"));
  // The worker is still at it, and none the worse.
  EXPECT_EQ(Device().worker_deaths(), 0);
  EXPECT_EQ(RunJob(Within(absl::Seconds(30))).state(), v1::JOB_STATE_SUCCEEDED);
}

TEST_F(FaultTest, CandidateThatFaultsOnceIsNotBlamed) {
  Start(absl::StrCat("fault=segv;index=2;once=", Path("once")));
  EXPECT_EQ(Tune({Problem(1)}).state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(CountStatus(CandidateStatus::kTimed), 8);
  EXPECT_TRUE(store_.ListQuarantine()->empty());
  EXPECT_EQ(Device().worker_deaths(), 1);
}

TEST_F(FaultTest, KillFromOutsideBlamesNobody) {
  Start("prepare_delay_ms=50");
  const v1::TuningJob job = Create({Problem(1)});
  ASSERT_TRUE(Eventually([this] { return Requests("prepare") == 1; }));
  kill(static_cast<pid_t>(Device().worker_pid()), SIGKILL);
  EXPECT_EQ(WaitFor(job.name()).state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(CountStatus(CandidateStatus::kTimed), 8);
  EXPECT_TRUE(store_.ListQuarantine()->empty());
  EXPECT_EQ(Device().worker_deaths(), 1);
}

TEST_F(FaultTest, QuarantinedCandidateIsNotTouchedAfterARestart) {
  Start("fault=segv;index=2");
  Tune({Problem(1)});
  tuner_->Drain(SteadyTime::Now());
  Start();
  EXPECT_EQ(Tune({Problem(1)}, /*force=*/true).state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(Device().worker_deaths(), 0);
  EXPECT_EQ(CountStatus(CandidateStatus::kQuarantined), 1);
}

TEST_F(FaultTest, LookupsAreAnsweredWhileAWorkerDies) {
  Start(absl::StrCat("fault=segv;index=2;prepare_delay_ms=5;problem=", Problem(1).ToText()));
  Tune({Problem(2)});
  const v1::TuningJob job = Create({Problem(1)});
  int answered = 0;
  while (!jobs::HasEnded(*tuner_->jobs().Get(job.name()))) {
    ASSERT_TRUE(LookupOne(Problem(2), jobs::OnMiss::kNone).has_answer());
    ++answered;
  }
  EXPECT_GT(answered, 0);
  EXPECT_EQ(tuner_->jobs().Get(job.name())->state(), v1::JOB_STATE_SUCCEEDED);
}

TEST_F(FaultTest, WorkerThatDiesWhileListingFailsTheProblemOnly) {
  Start(absl::StrCat("fault=abort;where=listing;problem=", Problem(1).ToText()));
  const v1::TuningJob job = Tune({Problem(1), Problem(2)});
  EXPECT_EQ(job.state(), v1::JOB_STATE_FAILED);
  EXPECT_EQ(job.succeeded_count(), 1);
  EXPECT_THAT(job.failures(0).reason(), HasSubstr("SIGABRT"));
  EXPECT_TRUE(store_.ListQuarantine()->empty());
}

TEST_F(FaultTest, WorkerThatDiesInTheLegacySearchTunesWithTheGraphApiAlone) {
  Start("fault=abort;where=legacy_listing");
  EXPECT_EQ(Tune({Problem(1)}).state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(Device().worker_deaths(), 1);
  EXPECT_EQ(CountStatus(CandidateStatus::kTimed), 8);
  const auto outcome = LookupOne(Problem(1), jobs::OnMiss::kNone);
  EXPECT_EQ(outcome.answer().evidence(), v1::EVIDENCE_INCOMPLETE);
  EXPECT_THAT(outcome.answer().note(), HasSubstr("only one of cuDNN's APIs"));
}

TEST_F(FaultTest, RefusedProblemKeepsTheWorker) {
  Start("refused=1");
  EXPECT_THAT(Tune({Problem(1)}).failures(0).reason(), HasSubstr("refuses every problem"));
  EXPECT_EQ(Device().state(), v1::DEVICE_STATE_READY);
  EXPECT_EQ(Device().worker_deaths(), 0);
}

TEST_F(FaultTest, MissingProgramFailsTheCallersWithTheReason) {
  AddDevice("", kH200, "/nonexistent/convtune-worker");
  Start();
  for (int i = 1; i <= 3; ++i) {
    const auto outcome = LookupOne(Problem(i), jobs::OnMiss::kTune);
    EXPECT_EQ(outcome.miss().reason(), v1::MISS_REASON_TUNING_FAILED);
    EXPECT_THAT(outcome.miss().message(), HasSubstr("/nonexistent/convtune-worker"));
  }
  EXPECT_EQ(Device().state(), v1::DEVICE_STATE_UNAVAILABLE);
}

TEST_F(FaultTest, WorkerOfAnotherEnvironmentIsNotUsed) {
  Start("environment=nvidia-t4,cc=7.5,sms=40,cudnn=9.19.0,lib=full");
  const auto outcome = LookupOne(Problem(1), jobs::OnMiss::kTune);
  EXPECT_THAT(outcome.miss().message(), HasSubstr("the worker's environment is nvidia-t4"));
}

TEST_F(FaultTest, WorkerOfAnotherVersionIsNotUsed) {
  Start("version=0.0.9");
  EXPECT_THAT(LookupOne(Problem(1), jobs::OnMiss::kTune).miss().message(),
              HasSubstr("the worker's version is \"0.0.9\", this program's is "));
}

TEST_F(FaultTest, BrokenDeviceLeavesTheWorkToItsTwin) {
  options_.backoff_initial = absl::Milliseconds(1);
  options_.backoff_max = absl::Minutes(10);
  AddDevice("");
  AddDevice("", kH200, "/nonexistent/convtune-worker");
  Start();
  for (int i = 1; i <= 20; ++i) EXPECT_EQ(Tune({Problem(i)}).state(), v1::JOB_STATE_SUCCEEDED);
}

}  // namespace
}  // namespace convtune::tuner

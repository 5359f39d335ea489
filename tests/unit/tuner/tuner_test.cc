#include "server/tuner/tuner.h"

#include <atomic>
#include <functional>

#include "gmock/gmock.h"
#include "tests/unit/tuner/tuner_fixture.h"

namespace convtune::tuner {
namespace {

using ::testing::HasSubstr;

TEST_F(TunerTest, TuneMeasuresCommitsAndAnswers) {
  Start("");
  const v1::TuningJob job = Tune({Problem(1), Problem(2), Problem(1)});
  EXPECT_EQ(job.state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(job.problem_count(), 2);
  EXPECT_EQ(store_.put_count(), 2);
  const auto outcome = LookupOne(Problem(1), jobs::OnMiss::kNone);
  const v1::Answer& answer = outcome.answer();
  EXPECT_EQ(answer.evidence(), v1::EVIDENCE_MEASURED);
  EXPECT_EQ(answer.candidate_count(), 8);
  EXPECT_TRUE(answer.persisted());
  EXPECT_FALSE(answer.fresh());
  EXPECT_EQ(answer.environment(), "nvidia-h200");
}

TEST_F(TunerTest, MissWithoutWorkIsReported) {
  Start("");
  const auto outcome = LookupOne(Problem(1), jobs::OnMiss::kNone);
  EXPECT_EQ(outcome.miss().reason(), v1::MISS_REASON_NOT_FOUND);
  EXPECT_EQ(Requests("open"), 0);
}

TEST_F(TunerTest, HeuristicLookupPreparesTheFirstConfigsOnly) {
  Start("");
  const auto outcome = LookupOne(Problem(1), jobs::OnMiss::kHeuristic);
  const v1::Answer& answer = outcome.answer();
  EXPECT_EQ(answer.evidence(), v1::EVIDENCE_HEURISTIC);
  EXPECT_TRUE(answer.fresh());
  EXPECT_EQ(answer.candidate_count(), 8);
  EXPECT_EQ(answer.eligible_count(), 3);
  EXPECT_EQ(Requests("measure"), 0);
  EXPECT_FALSE(LookupOne(Problem(1), jobs::OnMiss::kHeuristic).answer().fresh());
  EXPECT_EQ(Requests("open"), 1);
}

TEST_F(TunerTest, HeuristicLookupListsAllIfTheFirstConfigsBreakTheConstraints) {
  Start("");
  lookup::LookupRequest request = Request({Problem(1)}, jobs::OnMiss::kHeuristic);
  request.demand.constraints.max_workspace_bytes = 0;
  request.demand.constraints.launch = LaunchMode::kGraphCapture;
  request.demand.constraints.deterministic = true;
  // Candidates 0 and 6 need no workspace and can be captured.
  const auto first = Lookup(request);
  EXPECT_TRUE(first->results[0].row.has_answer());
  request.problems = {Problem(2)};
  request.demand.constraints.api = Api::kLegacy;
  const auto second = Lookup(request);
  EXPECT_EQ(second->results[0].row.miss().reason(), v1::MISS_REASON_NO_CANDIDATE);
  EXPECT_EQ(Requests("open"), 3);
}

TEST_F(TunerTest, HeuristicAnswerIsAMissToTune) {
  Start("");
  LookupOne(Problem(1), jobs::OnMiss::kHeuristic);
  const auto outcome = LookupOne(Problem(1), jobs::OnMiss::kTune);
  EXPECT_EQ(outcome.answer().evidence(), v1::EVIDENCE_MEASURED);
}

TEST_F(TunerTest, EnqueueReportsTheMissAndTheJob) {
  Start("");
  const auto outcome = LookupOne(Problem(1), jobs::OnMiss::kEnqueue);
  const v1::Miss& miss = outcome.miss();
  EXPECT_EQ(miss.reason(), v1::MISS_REASON_NOT_FOUND);
  EXPECT_EQ(WaitFor(miss.job()).state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_TRUE(LookupOne(Problem(1), jobs::OnMiss::kEnqueue).has_answer());
}

TEST_F(TunerTest, AJobThatALookupQueuesTunesWhatIsTooWeakForTheLookup) {
  Start("wrong=0");
  Tune({Problem(1)});
  ASSERT_EQ(Tuned().evidence, Evidence::kIncomplete);
  lookup::LookupRequest request = Request({Problem(1)}, jobs::OnMiss::kEnqueue);
  request.demand.min_evidence = Evidence::kMeasured;
  const auto response = Lookup(request).value();
  const v1::Miss& miss = response.results.at(0).row.miss();
  EXPECT_EQ(miss.reason(), v1::MISS_REASON_INSUFFICIENT_EVIDENCE);
  const v1::TuningJob job = WaitFor(miss.job());
  EXPECT_EQ(job.skipped_count(), 0);
  EXPECT_EQ(job.succeeded_count(), 1);
}

// Moves on by two seconds whenever somebody looks at it. Thread-safe.
class FastClock : public Clock {
 public:
  absl::Time Now() const override { return absl::FromUnixSeconds(now_ += 2); }

 private:
  mutable std::atomic<int64_t> now_{1'000'000'000};
};

TEST_F(TunerTest, WhatACallerWaitedForIsNotTooOldForIt) {
  FastClock clock;
  options_.clock = &clock;
  Start("");
  lookup::LookupRequest request = Request({Problem(1), Problem(2)}, jobs::OnMiss::kTune);
  request.demand.max_age = absl::Seconds(1);
  const auto response = Lookup(request).value();
  for (const lookup::LookupResult& result : response.results) {
    EXPECT_TRUE(result.row.has_answer());
  }
  request.demand.on_miss = jobs::OnMiss::kNone;
  EXPECT_EQ(Lookup(request)->results.at(0).row.miss().reason(), v1::MISS_REASON_TOO_OLD);
  tuner_.reset();  // before the clock
}

TEST_F(TunerTest, ProfileTunesToAFullListingOnce) {
  Start("", kProfile);
  LookupOne(Problem(1), jobs::OnMiss::kHeuristic);
  const auto outcome = LookupOne(Problem(1), jobs::OnMiss::kTune);
  EXPECT_EQ(outcome.answer().evidence(), v1::EVIDENCE_HEURISTIC);
  EXPECT_EQ(outcome.answer().eligible_count(), 8);
  EXPECT_EQ(Requests("open"), 2);
  EXPECT_TRUE(LookupOne(Problem(1), jobs::OnMiss::kTune).has_answer());
  EXPECT_EQ(Tune({Problem(1)}).skipped_count(), 1);
  EXPECT_EQ(Requests("open"), 2);
}

TEST_F(TunerTest, AJobThatListsOnlyTimesNothingAndIsDoneOnce) {
  Start("");
  jobs::JobRequest request;
  request.problems = {Problem(1)};
  request.demand.options.list_only = true;
  EXPECT_EQ(RunJob(request).state(), v1::JOB_STATE_SUCCEEDED);
  const Tuning listed = Tuned();
  EXPECT_EQ(listed.evidence, Evidence::kHeuristic);
  EXPECT_EQ(listed.candidates.size(), 8U);
  for (const Candidate& candidate : listed.candidates) {
    EXPECT_EQ(candidate.status, CandidateStatus::kFinalized);
    EXPECT_GT(candidate.places.mode_b, 0);
  }
  EXPECT_EQ(Requests("measure"), 0);
  EXPECT_EQ(RunJob(request).skipped_count(), 1);
  EXPECT_EQ(Requests("open"), 1);
  // A tuning still has all to do, and a list after it nothing.
  EXPECT_EQ(Tune({Problem(1)}).skipped_count(), 0);
  EXPECT_EQ(Tuned().evidence, Evidence::kMeasured);
  EXPECT_EQ(RunJob(request).skipped_count(), 1);
}

TEST_F(TunerTest, AHeuristicLookUpAsksModeBWhereModeAHasNothing) {
  Start("split_modes=1;candidates=6");
  LookupOne(Problem(1), jobs::OnMiss::kHeuristic);
  const Tuning tuning = Tuned();
  // Mode B's is the stock choice and the answer, before three of FALLBACK's that can be built.
  EXPECT_EQ(ToText(tuning.candidates.front().id), "graph:eng1,k2=1");
  EXPECT_EQ(StockIndex(tuning.candidates), 0U);
  EXPECT_TRUE(tuning.has(IncompleteReason::kFirstConfigsOnly));
  EXPECT_EQ(Requests("open"), 2);
}

TEST_F(TunerTest, AListReplacesTheFirstConfigs) {
  Start("");
  LookupOne(Problem(1), jobs::OnMiss::kHeuristic);
  jobs::JobRequest request;
  request.problems = {Problem(1)};
  request.demand.options.list_only = true;
  EXPECT_EQ(RunJob(request).skipped_count(), 0);
  const Tuning listed = Tuned();
  EXPECT_FALSE(listed.has(IncompleteReason::kFirstConfigsOnly));
  EXPECT_EQ(listed.candidates.back().status, CandidateStatus::kFinalized);
}

TEST_F(TunerTest, ThousandCallersAreOneRequest) {
  Start("prepare_delay_ms=20");
  std::vector<std::promise<bool>> answered(1000);
  for (std::promise<bool>& promise : answered) {
    tuner_->Lookup(Request({Problem(1)}, jobs::OnMiss::kTune),
                   [&promise](const absl::StatusOr<lookup::LookupResponse>& response) {
                     promise.set_value(response.ok() && response->results[0].row.has_answer());
                   });
  }
  for (std::promise<bool>& promise : answered) EXPECT_TRUE(promise.get_future().get());
  EXPECT_EQ(Requests("open"), 1);
  EXPECT_EQ(tuner_->Stats().info.worker_requests(), 1);
}

TEST_F(TunerTest, ResultsKeepTheRequestsOrder) {
  Start("");
  Tune({Problem(2)});
  const auto response =
      Lookup(Request({Problem(3), Problem(2), Problem(3)}, jobs::OnMiss::kHeuristic));
  ASSERT_TRUE(response.ok()) << response.status();
  ASSERT_EQ(response->results.size(), 3U);
  EXPECT_EQ(response->results[0].row.problem_text(), Problem(3).ToText());
  EXPECT_EQ(response->results[1].row.answer().evidence(), v1::EVIDENCE_MEASURED);
  EXPECT_EQ(response->results[2].row.answer().evidence(), v1::EVIDENCE_HEURISTIC);
  EXPECT_EQ(tuner_->Stats().info.lookups(), 3);
  EXPECT_EQ(tuner_->Stats().info.hits(), 1);
}

TEST_F(TunerTest, LookupsAreHitsAndMissesByReason) {
  Start("");
  for (const jobs::OnMiss on_miss :
       {jobs::OnMiss::kNone, jobs::OnMiss::kTune, jobs::OnMiss::kNone}) {
    ASSERT_TRUE(Lookup(Request({Problem(1)}, on_miss)).ok());
  }
  const TunerStats stats = tuner_->Stats();
  EXPECT_EQ(stats.info.lookups(), 3);
  EXPECT_EQ(stats.info.hits(), 1);
  EXPECT_EQ(stats.misses[static_cast<size_t>(v1::MISS_REASON_NOT_FOUND)], 2);
  ASSERT_EQ(stats.work.size(), 3U);
  EXPECT_EQ(stats.work[0].outcome, "succeeded");
  EXPECT_EQ(stats.work[0].duration.count(), 1);
}

TEST_F(TunerTest, KnownProblemIsSkippedUnlessForced) {
  Start("");
  Tune({Problem(1)});
  EXPECT_EQ(Tune({Problem(1)}).skipped_count(), 1);
  EXPECT_EQ(Requests("open"), 1);
  EXPECT_EQ(Tune({Problem(1)}, /*force=*/true).skipped_count(), 0);
  EXPECT_EQ(Requests("open"), 2);
  EXPECT_EQ(store_.put_count(), 2);
}

TEST_F(TunerTest, NoCandidateThatRunsFailsTheJobWithTheReason) {
  Start("unsupported=8");
  const v1::TuningJob job = Tune({Problem(1)});
  EXPECT_EQ(job.state(), v1::JOB_STATE_FAILED);
  ASSERT_EQ(job.failures_size(), 1);
  EXPECT_THAT(job.failures(0).reason(), HasSubstr("CUDNN_STATUS_NOT_SUPPORTED"));
  const auto outcome = LookupOne(Problem(1), jobs::OnMiss::kTune);
  EXPECT_EQ(outcome.miss().reason(), v1::MISS_REASON_TUNING_FAILED);
}

TEST_F(TunerTest, AbandonedLookupIsCalledBackAndItsWorkDropped) {
  Start("prepare_delay_ms=1000");
  std::promise<absl::Status> promise;
  const uint64_t token =
      tuner_->Lookup(Request({Problem(1), Problem(2)}, jobs::OnMiss::kTune),
                     [&promise](const absl::StatusOr<lookup::LookupResponse>& response) {
                       promise.set_value(response.status());
                     });
  EXPECT_EQ(tuner_->Stats().info.waiting_callers(), 1);
  tuner_->EndLookup(token, /*keep_work=*/false);
  EXPECT_TRUE(absl::IsCancelled(promise.get_future().get()));
  EXPECT_EQ(tuner_->Stats().info.waiting_callers(), 0);
  EXPECT_EQ(tuner_->Stats().info.queue_depth(), 0);
  EXPECT_TRUE(
      Eventually([this] { return tuner_->ListDevices()[0].state() == v1::DEVICE_STATE_IDLE; }));
  EXPECT_EQ(tuner_->ListDevices()[0].worker_deaths(), 0);
}

TEST_F(TunerTest, WorkThatIsLeftGoesBehindCallersAndIsAJob) {
  Start("candidates=4;prepare_delay_ms=40");
  const auto leave = [this](int n) {
    tuner_->EndLookup(tuner_->Lookup(Request({Problem(n)}, jobs::OnMiss::kTune),
                                     [](const absl::StatusOr<lookup::LookupResponse>&) {}),
                      /*keep_work=*/true);
  };
  for (int n = 1; n <= 30; ++n) leave(n);
  leave(30);  // it is kept already
  EXPECT_EQ(tuner_->Stats().info.waiting_callers(), 0);
  const std::vector<v1::TuningJob> jobs = tuner_->jobs().List();
  ASSERT_EQ(jobs.size(), 1U);
  EXPECT_TRUE(jobs[0].abandoned());
  EXPECT_EQ(jobs[0].problem_count(), 30);
  // A caller that waits goes before them.
  EXPECT_TRUE(LookupOne(Problem(40), jobs::OnMiss::kTune).has_answer());
  EXPECT_GT(tuner_->Stats().info.queue_depth(), 20);
  ASSERT_TRUE(tuner_->jobs().Cancel(jobs[0].name()).ok());
  EXPECT_EQ(tuner_->Stats().info.queue_depth(), 0);
}

TEST_F(TunerTest, AProblemThatStandsTwiceFailsOnceAndIsSaidTwice) {
  Start("unsupported=8");
  std::vector<ConvProblem> problems;
  for (int i = 0; i < 600; ++i) problems.push_back(Problem(1 + i % 300));
  const auto response = Lookup(Request(problems, jobs::OnMiss::kTune));
  ASSERT_TRUE(response.ok());
  EXPECT_EQ(Requests("open"), 300);
  for (size_t i = 0; i < 300; ++i) {
    EXPECT_EQ(response->results[i].row.miss().message(),
              response->results[i + 300].row.miss().message());
    EXPECT_EQ(response->results[i + 300].row.miss().reason(), v1::MISS_REASON_TUNING_FAILED);
  }
}

TEST_F(TunerTest, AProblemThatStandsTwiceTakesOnePlaceOfTheQueue) {
  Start("prepare_delay_ms=3000");
  for (int part = 0; part < 5; ++part) {
    jobs::JobRequest request;
    for (int n = 1; n <= 9000; ++n) request.problems.push_back(Problem(10 + n + part * 9000));
    ASSERT_TRUE(tuner_->CreateJob(request).ok());
  }
  std::vector<ConvProblem> few;
  for (int n = 0; n < 6000; ++n) few.push_back(Problem(1 + n % 3));
  std::promise<absl::Status> ended;
  const uint64_t token = tuner_->Lookup(Request(few, jobs::OnMiss::kTune),
                                        [&ended](const auto& r) { ended.set_value(r.status()); });
  tuner_->EndLookup(token, /*keep_work=*/false);
  const absl::Status status = ended.get_future().get();
  EXPECT_TRUE(absl::IsCancelled(status)) << status;  // not refused
}

TEST_F(TunerTest, AProblemThatStandsTwiceIsLeftOnce) {
  Start("candidates=4;prepare_delay_ms=40");
  tuner_->EndLookup(
      tuner_->Lookup(Request({Problem(1), Problem(1), Problem(2), Problem(2)}, jobs::OnMiss::kTune),
                     [](const absl::StatusOr<lookup::LookupResponse>&) {}),
      /*keep_work=*/true);
  EXPECT_EQ(tuner_->jobs().List().at(0).problem_count(), 2);
  const v1::TuningJob job = WaitFor(tuner_->jobs().List().at(0).name());
  EXPECT_EQ(job.state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(job.succeeded_count(), 2);
}

TEST_F(TunerTest, CancelledJobStopsButSharedProblemsGoOn) {
  Start("prepare_delay_ms=50");
  const v1::TuningJob first = Create({Problem(1), Problem(2)});
  const v1::TuningJob second = Create({Problem(2)});
  EXPECT_EQ(tuner_->jobs().Cancel(first.name())->state(), v1::JOB_STATE_CANCELLED);
  EXPECT_EQ(WaitFor(second.name()).state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_TRUE(absl::IsNotFound(tuner_->GetTuning("", Problem(1)).status()));
}

TEST_F(TunerTest, SameRequestIdIsTheSameJob) {
  Start("");
  jobs::JobRequest request;
  request.problems = {Problem(1)};
  request.request_id = "id";
  const std::string name = tuner_->CreateJob(request)->name();
  EXPECT_EQ(tuner_->CreateJob(request)->name(), name);
  WaitFor(name);
  EXPECT_EQ(tuner_->CreateJob(request)->name(), name) << "what is known by now makes no difference";
  request.demand.max_age = absl::ZeroDuration();
  EXPECT_TRUE(absl::IsAlreadyExists(tuner_->CreateJob(request).status()));
  request.demand.max_age = absl::InfiniteDuration();
  request.demand.options.list_only = true;
  EXPECT_TRUE(absl::IsAlreadyExists(tuner_->CreateJob(request).status()));
  request.demand.options.list_only = false;
  request.problems.push_back(Problem(2));
  EXPECT_TRUE(absl::IsAlreadyExists(tuner_->CreateJob(request).status()));
}

TEST_F(TunerTest, RefusedWritesAreAnsweredAndWrittenLater) {
  Start("");
  store_.FailWith(absl::ResourceExhaustedError("disk full"));
  const v1::TuningJob job = Tune({Problem(1)});
  EXPECT_EQ(job.state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_FALSE(job.persisted());
  EXPECT_FALSE(LookupOne(Problem(1), jobs::OnMiss::kNone).answer().persisted());
  EXPECT_TRUE(tuner_->GetTuning("", Problem(1)).ok());
  EXPECT_FALSE(tuner_->Stats().info.writable());
  store_.FailWith(absl::OkStatus());
  EXPECT_TRUE(Tune({Problem(2)}).persisted());
  EXPECT_TRUE(LookupOne(Problem(1), jobs::OnMiss::kNone).answer().persisted());
  EXPECT_TRUE(tuner_->Stats().info.writable());
  EXPECT_EQ(store_.put_count(), 2);
}

TEST_F(TunerTest, RefusedWritesAreTriedAgainByThemselves) {
  Start("");
  store_.FailWith(absl::UnavailableError("disk"));
  Tune({Problem(1)});
  store_.FailWith(absl::OkStatus());
  EXPECT_TRUE(Eventually([this] { return tuner_->Stats().info.writable(); }));
  EXPECT_TRUE(store_.GetTuning({Problem(1).ToText(), kH200}).ok());
}

TEST_F(TunerTest, KnowsAfterARestartWhatWasTuned) {
  Start("");
  Tune({Problem(1)});
  tuner_->Drain(SteadyTime::Now());
  const int opened = Requests("open");
  Start();
  EXPECT_EQ(LookupOne(Problem(1), jobs::OnMiss::kTune).answer().evidence(), v1::EVIDENCE_MEASURED);
  EXPECT_EQ(Requests("open"), opened);
}

TEST_F(TunerTest, StoredEnvironmentWithoutADeviceAnswersButDoesNotTune) {
  driver_ = "570.124";
  Start("");
  Tune({Problem(1)});
  const v1::Environment current = tuner_->ListEnvironments().at(0);
  EXPECT_TRUE(current.current());
  EXPECT_EQ(current.text(), kH200);
  EXPECT_EQ(current.tuning_count(), 1);
  EXPECT_EQ(current.provenance().driver_version(), "570.124");
  tuner_->Drain(SteadyTime::Now());
  options_.devices.clear();
  Start();
  EXPECT_TRUE(LookupOne(Problem(1), jobs::OnMiss::kTune).has_answer());
  EXPECT_EQ(LookupOne(Problem(2), jobs::OnMiss::kTune).miss().reason(), v1::MISS_REASON_NO_DEVICE);
  EXPECT_FALSE(tuner_->ListEnvironments().at(0).current());
}

TEST_F(TunerTest, EnvironmentMustBeNamedWhereThereAreSeveral) {
  AddDevice("", kH200);
  AddDevice("", kProfile);
  Start();
  lookup::LookupRequest request = Request({Problem(1)}, jobs::OnMiss::kNone);
  EXPECT_TRUE(absl::IsInvalidArgument(Lookup(request).status()));
  request.environment = "profile:nvidia-h200";
  EXPECT_TRUE(Lookup(request).ok());
  request.environment = "nvidia-t4";
  EXPECT_TRUE(absl::IsNotFound(Lookup(request).status()));
}

Environment ProgramWith(CudnnVersion cudnn) {
  Environment program;
  program.cudnn = cudnn;
  return program;
}

TEST_F(TunerTest, AProgramGetsAnswersOfItsOwnEnvironmentAlone) {
  Start("", "nvidia-h200,cc=9.0,sms=132,cudnn=9.18.0,lib=full");
  Tune({Problem(1)});
  Restart("");
  lookup::LookupRequest request = Request({Problem(1)}, jobs::OnMiss::kNone);
  request.program = ProgramWith({9, 18, 0});
  auto response = Lookup(request).value();
  EXPECT_TRUE(response.results[0].row.has_answer());
  EXPECT_EQ(response.environment.cudnn, (CudnnVersion{9, 18, 0}));
  request.program = ProgramWith({9, 19, 0});
  response = Lookup(request).value();
  EXPECT_EQ(response.results[0].row.miss().reason(), v1::MISS_REASON_NOT_FOUND);
  EXPECT_EQ(response.environment.cudnn, (CudnnVersion{9, 19, 0}));
}

TEST_F(TunerTest, AProgramOfAnotherEnvironmentGetsNoAnswerAndStartsNoWork) {
  Start("");
  Tune({Problem(1)});
  const int opened = Requests("open");
  for (const jobs::OnMiss on_miss :
       {jobs::OnMiss::kNone, jobs::OnMiss::kEnqueue, jobs::OnMiss::kTune}) {
    lookup::LookupRequest request = Request({Problem(1), Problem(2)}, on_miss);
    request.program = ProgramWith({9, 12, 0});
    request.environment = on_miss == jobs::OnMiss::kTune ? kH200 : "";
    const auto response = Lookup(request).value();
    for (const lookup::LookupResult& result : response.results) {
      const auto& miss = result.row.miss();
      EXPECT_EQ(miss.reason(), v1::MISS_REASON_OTHER_ENVIRONMENT);
      EXPECT_EQ(miss.message(),
                absl::StrCat("other environment: the program has cudnn=9.12.0; "
                             "answers are for ",
                             kH200,
                             "; start convtuned with the program's GPU and cuDNN, or "
                             "import a bundle of its environment"));
      EXPECT_EQ(miss.job(), "");
    }
  }
  EXPECT_EQ(tuner_->Stats().misses[static_cast<size_t>(v1::MISS_REASON_OTHER_ENVIRONMENT)], 6);
  jobs::JobRequest job;
  job.problems = {Problem(2)};
  job.program = ProgramWith({9, 12, 0});
  EXPECT_TRUE(absl::IsFailedPrecondition(tuner_->CreateJob(job).status()));
  EXPECT_EQ(Requests("open"), opened);
  job.program = ProgramWith({9, 19, 0});
  EXPECT_TRUE(tuner_->CreateJob(job).ok());
}

TEST_F(TunerTest, TheProgramTellsWhichOfSeveralEnvironmentsIsMeant) {
  AddDevice("", kH200);
  AddDevice("", kProfile);
  Start();
  lookup::LookupRequest request = Request({Problem(1)}, jobs::OnMiss::kNone);
  request.program = ProgramWith({9, 19, 0});
  EXPECT_TRUE(absl::IsInvalidArgument(Lookup(request).status()));
  request.program.gpu_model = "NVIDIA H200";
  EXPECT_EQ(Lookup(request).value().environment.ToText(), kH200);
  request.program.profile = true;
  EXPECT_EQ(Lookup(request).value().environment.ToText(), kProfile);
}

TEST_F(TunerTest, AHintForAnotherEnvironmentSaysWhatItHoldsFor) {
  Start("");
  Tune({Problem(1)});
  lookup::LookupRequest request = Request({Problem(1)}, jobs::OnMiss::kNone);
  request.program = ProgramWith({9, 12, 0});
  request.include_hints = true;
  const auto response = Lookup(request).value();
  const auto& miss = response.results[0].row.miss();
  ASSERT_TRUE(miss.has_hint());
  EXPECT_EQ(miss.hint().environment_text(), kH200);
  EXPECT_EQ(miss.hint().note(), absl::StrCat("not exact: holds for ", kH200, ", not cudnn=9.12.0"));
}

TEST_F(TunerTest, NoEnvironmentAtAllIsAPrecondition) {
  Start();
  EXPECT_TRUE(
      absl::IsFailedPrecondition(Lookup(Request({Problem(1)}, jobs::OnMiss::kNone)).status()));
}

TEST_F(TunerTest, HintComesFromTheProfile) {
  AddDevice("", kH200);
  AddDevice("", kProfile);
  Start();
  lookup::LookupRequest request = Request({Problem(1)}, jobs::OnMiss::kHeuristic);
  request.environment = "profile:nvidia-h200";
  Lookup(request).value();
  request = Request({Problem(1)}, jobs::OnMiss::kNone);
  request.environment = "nvidia-h200";
  request.include_hints = true;
  const auto response = Lookup(request).value();
  const v1::Miss& miss = response.results[0].row.miss();
  ASSERT_TRUE(miss.has_hint());
  EXPECT_EQ(miss.hint().environment(), "profile:nvidia-h200");
  EXPECT_EQ(miss.hint().environment_text(), kProfile);
  EXPECT_THAT(miss.hint().note(), HasSubstr("not exact"));
}

TEST_F(TunerTest, PinIsAnsweredUntilItEnds) {
  Start("");
  Tune({Problem(1)});
  const Tuning tuning = Tuned();
  const CandidateId last = tuning.candidates.back().id;
  const CandidatePattern pattern = CandidatePattern::Parse(ToText(last)).value();
  ASSERT_TRUE(tuner_->PutPin("", Problem(1), pattern, "why not", std::nullopt, 0).ok());
  EXPECT_EQ(LookupOne(Problem(1), jobs::OnMiss::kNone).answer().winner().text(), ToText(last));
  EXPECT_EQ(tuner_->ListPins("")->size(), 1U);
  ASSERT_TRUE(tuner_->DeletePin("", Problem(1), 0).ok());
  EXPECT_EQ(LookupOne(Problem(1), jobs::OnMiss::kNone).answer().winner().text(),
            ToText(tuning.candidates[0].id));
}

TEST_F(TunerTest, PinNeedsATuningThatListsTheCandidate) {
  Start("");
  const CandidatePattern pattern = CandidatePattern::Parse("eng99").value();
  const auto pin = [&] {
    return tuner_->PutPin("", Problem(1), pattern, "x", std::nullopt, 0).status();
  };
  EXPECT_TRUE(absl::IsNotFound(pin()));
  Tune({Problem(1)});
  EXPECT_TRUE(absl::IsFailedPrecondition(pin()));
}

TEST_F(TunerTest, DeletedTuningIsAMissAgain) {
  Start("");
  Tune({Problem(1)});
  EXPECT_EQ(tuner_->DeleteTunings("", {Problem(1), Problem(2)}, /*only_from_fleet=*/false).value(),
            1);
  EXPECT_TRUE(LookupOne(Problem(1), jobs::OnMiss::kNone).has_miss());
}

TEST_F(TunerTest, DrainCallsBackEveryWaitingCaller) {
  Start("prepare_delay_ms=60000");
  std::promise<absl::Status> promise;
  tuner_->Lookup(Request({Problem(1), Problem(2)}, jobs::OnMiss::kTune),
                 [&promise](const absl::StatusOr<lookup::LookupResponse>& response) {
                   promise.set_value(response.status());
                 });
  const v1::TuningJob job = Create({Problem(3)});
  ASSERT_TRUE(Eventually([this] { return Requests("prepare") == 1; }));
  tuner_->Drain(SteadyTime::Now());
  EXPECT_TRUE(absl::IsUnavailable(promise.get_future().get()));
  EXPECT_EQ(tuner_->jobs().Get(job.name())->state(), v1::JOB_STATE_CANCELLED);
  EXPECT_TRUE(absl::IsUnavailable(Lookup(Request({Problem(1)}, jobs::OnMiss::kNone)).status()));
  EXPECT_TRUE(absl::IsUnavailable(tuner_->CreateJob({}).status()));
}

TEST_F(TunerTest, DrainLetsTheRunningTuningEnd) {
  Start("prepare_delay_ms=20");
  const v1::TuningJob job = Create({Problem(1)});
  ASSERT_TRUE(Eventually([this] { return Requests("prepare") == 1; }));
  tuner_->Drain(SteadyTime::Now() + absl::Minutes(1));
  EXPECT_EQ(tuner_->jobs().Get(job.name())->state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(store_.put_count(), 1);
}

TEST_F(TunerTest, IdleWorkerIsEndedAndStartedAgain) {
  options_.idle_timeout = absl::Milliseconds(20);
  Start("");
  Tune({Problem(1)});
  ASSERT_TRUE(Eventually([this] { return tuner_->ListDevices()[0].worker_pid() == 0; }));
  EXPECT_EQ(tuner_->ListDevices()[0].worker_deaths(), 0);
  EXPECT_EQ(Tune({Problem(2)}).state(), v1::JOB_STATE_SUCCEEDED);
}

TEST_F(TunerTest, BudgetThatEndsEarlyIsIncomplete) {
  Start("measure_delay_ms=40");
  EXPECT_EQ(RunJob(Within(absl::Milliseconds(250))).state(), v1::JOB_STATE_SUCCEEDED);
  const auto outcome = LookupOne(Problem(1), jobs::OnMiss::kNone);
  EXPECT_EQ(outcome.answer().evidence(), v1::EVIDENCE_INCOMPLETE);
}

TEST_F(TunerTest, ATuningKeepsWhyItsRaceEndedAndHowTheCardWas) {
  const Tuning tuning = TuneOn("clock_reasons=4;host_us=500");
  EXPECT_EQ(tuning.stop_reason, StopReason::kSettled);
  EXPECT_GE(tuning.rounds, 12);
  EXPECT_EQ(tuning.evidence, Evidence::kMeasured);
  EXPECT_TRUE(tuning.conditions.known);
  EXPECT_EQ(tuning.conditions.clock_reasons, 4U);
  EXPECT_EQ(tuning.conditions.compute_mode, ComputeMode::kDefault);
  // Its time is the GPU's, and the host's is kept beside it.
  EXPECT_LT(tuning.candidates[0].median_us, 200);
  EXPECT_EQ(tuning.candidates[0].host_us, 500);
  EXPECT_EQ(tuning.candidates[0].sm_clock_mhz, 1755);
}

TEST_F(TunerTest, ATuningKeepsHowItsRunsWent) {
  const Tuning tuning = TuneOn("retried_runs=2;unblocked=launches, after eng1, eng2, eng3 gave up");
  EXPECT_EQ(tuning.conditions.retried_runs, 2);
  EXPECT_EQ(tuning.conditions.unblocked, "launches, after eng1, eng2, eng3 gave up");
  EXPECT_EQ(tuner_->ListDevices()[0].unblocked(), tuning.conditions.unblocked);
}

TEST_F(TunerTest, AMeasurementOnABusyCardIsMarkedAndNeverReplacesACleanOne) {
  const Tuning busy = TuneOn("other_processes=1;busy_looks=0");
  EXPECT_EQ(busy.evidence, Evidence::kIncomplete);
  EXPECT_THAT(busy.incomplete_message, ::testing::HasSubstr("contended: 1 other process"));
}

TEST_F(TunerTest, WaitsForAnIdleCardWhenToldTo) {
  Start("other_processes=1;busy_looks=2");
  jobs::JobRequest request;
  request.problems = {Problem(1)};
  request.demand.options.wait_idle = absl::Minutes(1);
  EXPECT_EQ(RunJob(request).state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(Requests("conditions"), 3);
  EXPECT_EQ(Tuned().evidence, Evidence::kMeasured);
}

TEST_F(TunerTest, AWaitForAnIdleCardEnds) {
  Start("other_processes=1");
  jobs::JobRequest request;
  request.problems = {Problem(1)};
  request.demand.options.wait_idle = absl::Milliseconds(300);
  EXPECT_EQ(RunJob(request).state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(Tuned().evidence, Evidence::kIncomplete);
}

// A WatchedStore calls `on_read` before it reads a tuning.
class WatchedStore : public MemoryStore {
 public:
  absl::StatusOr<Tuning> GetTuning(const TuningKey& key) override {
    on_read();
    return MemoryStore::GetTuning(key);
  }
  std::function<void()> on_read = [] {};
};

TEST_F(TunerTest, ABanIsListedWhileEveryAnswerHeedsIt) {
  WatchedStore store;
  options_.store = &store;
  Tuner& tuner = Start("");
  EXPECT_EQ(Tune({Problem(1)}).succeeded_count(), 1);
  std::vector<size_t> listed;
  store.on_read = [&] { listed.push_back(tuner.ListBans().size()); };
  const auto created = tuner.CreateBan(*BansOfPattern("graph:*").all()[0], 1, /*dry_run=*/false);
  ASSERT_TRUE(created.ok()) << created.status();
  const std::vector<v1::Ban> bans = tuner.ListBans();
  ASSERT_EQ(bans.size(), 1U);
  EXPECT_EQ(created->ban().name(), bans[0].name());
  ASSERT_TRUE(tuner.DeleteBan(1, 0).ok());
  EXPECT_TRUE(tuner.ListBans().empty());
  EXPECT_EQ(listed, (std::vector<size_t>{0, 1}));
  tuner_.reset();
}

}  // namespace
}  // namespace convtune::tuner

#include "server/worker/session.h"
#include "proto/base/clock.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/convert/record_codec.h"
#include "tests/unit/worker/session_fixture.h"

namespace convtune::worker {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

TEST_F(SessionTest, HelloSaysWhoTheWorkerIs) {
  const auto replies = Hello();
  ASSERT_THAT(replies, SizeIs(1));
  EXPECT_EQ(replies[0].hello().environment_text(), backend_.environment().ToText());
  EXPECT_TRUE(replies[0].hello().has_gpu());
}

TEST_F(SessionTest, TheWorkerChecksItselfBeforeItAnswersTheHandshake) {
  backend_.self_check.mask = 1 | MaskOf(SelfCheckBit::kCaches);
  backend_.self_check.details = "caches: reading is as fast after a flush as before it";
  worker::v1::Request request;
  request.mutable_hello()->set_version(CONVTUNE_VERSION);
  request.mutable_hello()->set_lost_steps(16);
  const auto replies = Ask(request);
  ASSERT_THAT(replies, SizeIs(2));
  EXPECT_EQ(replies[0].self_checking(), 4U);
  EXPECT_EQ(FromProto(replies[1].hello().self_check()), backend_.self_check);
  EXPECT_EQ(backend_.lost_self_check_steps, 16U);
  EXPECT_EQ(backend_.applied, backend_.self_check);
}

TEST_F(SessionTest, WhatAWorkerBeforeFoundIsTakenForKnown) {
  worker::v1::Request request;
  request.mutable_hello()->set_version(CONVTUNE_VERSION);
  *request.mutable_hello()->mutable_self_check() =
      ToProto(SelfCheck{1 | MaskOf(SelfCheckBit::kBlockingKernel), ""});
  const auto replies = Ask(request);
  ASSERT_THAT(replies, SizeIs(1));
  EXPECT_EQ(backend_.self_checks, 0);
  EXPECT_FALSE(backend_.applied.works(SelfCheckBit::kBlockingKernel));
  EXPECT_THAT(replies[0].hello().self_check().failed(), ElementsAre("blocking_kernel"));
}

TEST_F(SessionTest, MixedLibrariesEndTheSessionAlsoWhereTheSelfCheckIsKnown) {
  void* const other = dlopen(CONVTUNE_FAKE_CUDNN, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(other, nullptr) << dlerror();
  for (const bool known : {false, true}) {
    backend_.self_check = {1, ""};
    worker::v1::Request request;
    request.mutable_hello()->set_version(CONVTUNE_VERSION);
    if (known) *request.mutable_hello()->mutable_self_check() = ToProto(SelfCheck{1, ""});
    EXPECT_THAT(Ask(request).back().outcome().message(), HasSubstr("cuDNN's libraries are mixed: "))
        << known;
    EXPECT_EQ(status_.code(), absl::StatusCode::kFailedPrecondition) << known;
  }
  dlclose(other);
}

TEST_F(SessionTest, AProfilesWorkerSaysNothingOfItself) {
  EXPECT_FALSE(Hello().back().hello().has_self_check());
}

TEST_F(SessionTest, AnotherVersionIsRefusedAndEndsTheSession) {
  const auto replies = Hello("0.0.9");
  ASSERT_THAT(replies, SizeIs(1));
  EXPECT_FALSE(replies[0].outcome().ok());
  EXPECT_THAT(replies[0].outcome().message(),
              HasSubstr("version: the daemon's is \"0.0.9\", this worker's is "));
  EXPECT_EQ(status_.code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(SessionTest, AnythingBeforeHelloIsRefused) {
  const auto replies = Open();
  ASSERT_THAT(replies, SizeIs(1));
  EXPECT_THAT(replies[0].outcome().message(), HasSubstr("hello"));
  EXPECT_EQ(status_.code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(SessionTest, ACandidateThatIsAskedForIsListedOnceAndLast) {
  backend_.Add(1);
  Hello();
  const auto plain = Open();
  ASSERT_GT(plain.size(), 1U);
  worker::v1::OpenProblem open = DefaultOpen();
  Candidate known;
  ASSERT_TRUE(Read(plain[0].listed(), &known).ok());
  open.add_candidate_texts(ToText(known.id));
  open.add_candidate_texts("graph:eng987,k2=5");
  const auto replies = Open(open);
  ASSERT_THAT(replies, SizeIs(plain.size() + 1));
  const worker::v1::Reply& last = replies[replies.size() - 2];
  EXPECT_EQ(last.listed().engine_config().engine_index(), 987);
  EXPECT_EQ(last.listed().heuristic_rank(), -1);
  EXPECT_EQ(last.index(), static_cast<int>(plain.size()) - 1);
}

TEST_F(SessionTest, ACandidateThatCannotBeReadIsNamed) {
  Hello();
  worker::v1::OpenProblem open = DefaultOpen();
  open.add_candidate_texts("graph:eng1");
  open.add_candidate_texts("nonsense");
  const auto replies = Open(open);
  ASSERT_THAT(replies, SizeIs(1));
  EXPECT_THAT(replies[0].outcome().message(), HasSubstr("candidate_texts[1]: "));
}

TEST_F(SessionTest, ARequestWithoutAKindFailsAlone) {
  Hello();
  const auto replies = Ask(worker::v1::Request());
  ASSERT_THAT(replies, SizeIs(1));
  EXPECT_FALSE(replies[0].outcome().ok());
  EXPECT_TRUE(status_.ok());
}

TEST_F(SessionTest, OpenListsCandidatesWithTheirNotes) {
  FakeCandidate& fake = backend_.Add(7);
  fake.candidate.numerical_notes =
      NoteBit(NumericalNote::kTensorCore) | NoteBit(NumericalNote::kWinograd);
  fake.candidate.behavior_notes = NoteBit(BehaviorNote::kRuntimeCompilation);
  fake.candidate.heuristic_rank = 3;
  Hello();
  const auto replies = Open();
  ASSERT_THAT(replies, SizeIs(2));
  EXPECT_EQ(replies[0].index(), 0);
  const convtune::v1::Candidate& listed = replies[0].listed();
  EXPECT_EQ(listed.engine_config().engine_index(), 7);
  EXPECT_EQ(listed.heuristic_rank(), 3);
  EXPECT_THAT(listed.numerical_notes(), ElementsAre(1, 6));
  EXPECT_THAT(listed.behavior_notes(), ElementsAre(1));
  EXPECT_TRUE(replies[1].outcome().ok());
}

TEST_F(SessionTest, AnEmptyListingFailsWithCudnnsWords) {
  backend_.end.set_message("no engine takes this");
  Hello();
  const auto replies = Open();
  ASSERT_THAT(replies, SizeIs(1));
  EXPECT_FALSE(replies[0].outcome().ok());
  EXPECT_EQ(replies[0].outcome().message(), "no engine takes this");
}

TEST_F(SessionTest, ASearchThatWasLeftOutIsSaid) {
  backend_.Add(1);
  Hello();
  EXPECT_FALSE(Open().back().outcome().find_left_out());
  backend_.end.set_find_left_out(true);
  EXPECT_TRUE(Open().back().outcome().find_left_out());
}

TEST_F(SessionTest, OpenPassesItsOptionsOn) {
  backend_.Add(1);
  backend_.end.set_truncated(true);
  Hello();
  worker::v1::OpenProblem open = DefaultOpen();
  open.set_listing(worker::v1::LISTING_EXHAUSTIVE);
  open.set_legacy_api(true);
  open.set_max_candidates(5);
  const auto replies = Open(open);
  EXPECT_TRUE(replies.back().outcome().truncated());
  EXPECT_EQ(backend_.listed.listing(), worker::v1::LISTING_EXHAUSTIVE);
  EXPECT_TRUE(backend_.listed.legacy_api());
  EXPECT_EQ(backend_.listed.max_candidates(), 5);
  EXPECT_EQ(backend_.deadline, SteadyTime::InfiniteFuture());
}

TEST_F(SessionTest, BadOpenNamesTheField) {
  Hello();
  worker::v1::OpenProblem open = DefaultOpen();
  open.set_problem_text("fwd,x=1x8x16x16,w=8x8x3x3,blue");
  EXPECT_THAT(Open(open).back().outcome().message(), HasSubstr("problem_text"));
  open = DefaultOpen();
  open.clear_listing();
  EXPECT_THAT(Open(open).back().outcome().message(), HasSubstr("listing"));
  open = DefaultOpen();
  open.set_graph_api(false);
  EXPECT_THAT(Open(open).back().outcome().message(), HasSubstr("graph_api"));
  backend_.TakeGpuAway();
  open.set_legacy_api(true);
  EXPECT_THAT(Open(open).back().outcome().message(), HasSubstr("need a GPU"));
  EXPECT_TRUE(status_.ok());
}

TEST_F(SessionTest, OpenAndCloseEndTheProblemBefore) {
  backend_.Add(1);
  Hello();
  Open();
  Open();
  EXPECT_EQ(backend_.open_problems, 1);
  worker::v1::Request close;
  close.mutable_close_problem();
  EXPECT_TRUE(Ask(close).back().outcome().ok());
  EXPECT_EQ(backend_.open_problems, 0);
  EXPECT_THAT(Prepare({0}).back().outcome().message(), HasSubstr("no problem is open"));
}

TEST_F(SessionTest, PrepareTouchesAndReportsEach) {
  backend_.Add(1).prepare = absl::UnimplementedError("finalize: NOT_SUPPORTED: too wide");
  backend_.Add(2).prepared.set_workspace_bytes(4096);
  backend_.Add(3).prepared.set_over_memory(true);
  Hello();
  Open();
  const auto replies = Prepare({0, 1, 2});
  ASSERT_THAT(replies, SizeIs(7));
  EXPECT_TRUE(replies[0].has_touching());
  EXPECT_EQ(replies[0].index(), 0);
  EXPECT_FALSE(replies[1].prepared().ok());
  EXPECT_EQ(replies[1].prepared().error_message(), "finalize: NOT_SUPPORTED: too wide");
  EXPECT_TRUE(replies[2].has_touching());
  EXPECT_EQ(replies[2].index(), 1);
  EXPECT_TRUE(replies[3].prepared().ok());
  EXPECT_EQ(replies[3].prepared().workspace_bytes(), 4096);
  EXPECT_FALSE(replies[5].prepared().ok());
  EXPECT_TRUE(replies[5].prepared().over_memory());
  EXPECT_EQ(replies[5].prepared().error_message(), "");
}

TEST_F(SessionTest, TextsThatAreNoUtf8ComeThrough) {
  backend_.Add(1).prepare = absl::InternalError("engine \xff fell over");
  backend_.Add(2).checked = absl::InternalError("engine \xff fell over");
  Hello();
  Open();
  const auto prepared = Prepare({0, 1});
  EXPECT_EQ(prepared[1].prepared().error_message(), "engine ? fell over");
  EXPECT_EQ(Check({1})[1].checked().error_message(), "engine ? fell over");
  worker::v1::Reply parsed;
  EXPECT_TRUE(parsed.ParseFromString(prepared[1].SerializeAsString()));
}

TEST_F(SessionTest, PreparesInOrderUntilEnoughMayRun) {
  for (int engine = 1; engine <= 5; ++engine) backend_.Add(engine);
  backend_.candidates[0].prepare = absl::UnimplementedError("no");
  backend_.candidates[1].prepared.set_over_memory(true);
  Hello();
  Open(DefaultOpen());
  const auto replies = Prepare({0, 1, 2, 3, 4}, /*stop_after=*/2);
  std::vector<int> prepared;
  for (const worker::v1::Reply& reply : replies) {
    if (reply.has_prepared()) prepared.push_back(reply.index());
  }
  EXPECT_THAT(prepared, ElementsAre(0, 1, 2, 3));
  EXPECT_FALSE(replies.back().outcome().out_of_time());
}

TEST_F(SessionTest, LackOfMemoryIsSaidAsSuch) {
  backend_.Add(1).prepare = absl::ResourceExhaustedError("CUDNN_STATUS_ALLOC_FAILED");
  backend_.Add(2).checked = absl::ResourceExhaustedError("its workspace does not fit");
  backend_.Add(3).checked = absl::InternalError("it fell over");
  Hello();
  Open();
  const auto prepared = Prepare({0, 1, 2});
  EXPECT_TRUE(prepared[1].prepared().over_memory());
  EXPECT_EQ(prepared[1].prepared().error_message(), "CUDNN_STATUS_ALLOC_FAILED");
  const auto checked = Check({1, 2});
  EXPECT_TRUE(checked[1].checked().over_memory());
  EXPECT_FALSE(checked[3].checked().over_memory());
}

TEST_F(SessionTest, IndexesThatWereNotListedAreRefusedByPlace) {
  backend_.Add(1);
  Hello();
  Open();
  EXPECT_THAT(Prepare({0, 1}).back().outcome().message(), HasSubstr("indexes[1]"));
  EXPECT_THAT(Prepare({-1}).back().outcome().message(), HasSubstr("indexes[0]"));
}

TEST_F(SessionTest, MeasureNeedsPreparedCandidates) {
  backend_.Add(1);
  Hello();
  Open();
  EXPECT_THAT(Measure({0}).back().outcome().message(), HasSubstr("is not prepared"));
}

TEST_F(SessionTest, MeasureSendsSamplesAndFailures) {
  backend_.Add(5);
  backend_.Add(6).runs_until_failure = 0;
  Ready();
  const auto replies = Measure({0, 1});
  ASSERT_THAT(replies, SizeIs(7));
  EXPECT_TRUE(replies[0].has_conditions());
  EXPECT_TRUE(replies[1].has_touching());
  EXPECT_EQ(replies[1].index(), 0);
  EXPECT_EQ(replies[2].sample().gpu_us(), 5.0);
  EXPECT_EQ(replies[2].sample().host_us(), 0.5);
  EXPECT_EQ(replies[2].sample().sm_clock_mhz(), 1755);
  EXPECT_TRUE(replies[2].sample().blocked());
  EXPECT_EQ(replies[4].index(), 1);
  EXPECT_EQ(replies[4].sample().error_message(), "it fell over");
  EXPECT_FALSE(replies[4].sample().blocked());
  EXPECT_TRUE(replies[5].has_conditions());
  EXPECT_TRUE(replies[6].outcome().ok());
}

TEST_F(SessionTest, TheOrderOfAMeasureRotatesFromRoundToRound) {
  for (int engine = 1; engine <= 3; ++engine) backend_.Add(engine);
  Ready();
  EXPECT_FALSE(Measure({0, 1, 2}, 3).back().outcome().out_of_time());
  EXPECT_THAT(backend_.runs, ElementsAre(1, 2, 3,  //
                                         2, 3, 1,  //
                                         3, 1, 2));
}

TEST_F(SessionTest, EachCandidateIsTouchedBeforeItsRuns) {
  backend_.Add(1);
  backend_.Add(2);
  Ready();
  std::vector<std::string> events;
  for (const worker::v1::Reply& reply : Measure({0, 1}, 2)) {
    if (reply.has_touching()) events.push_back(absl::StrCat("touch ", reply.index()));
    if (reply.has_sample()) {
      events.push_back(
          absl::StrCat("sample ", reply.index(), " of round ", reply.sample().round()));
    }
  }
  EXPECT_THAT(events,
              ElementsAre("touch 0", "sample 0 of round 0", "touch 1", "sample 1 of round 0",
                          "sample 1 of round 1", "touch 0", "sample 0 of round 1"));
}

TEST_F(SessionTest, OneThatFailsInARoundIsLeftOutFromThenOn) {
  backend_.Add(1).runs_until_failure = 1;
  backend_.Add(2);
  Ready();
  Measure({0, 1}, 3);
  EXPECT_THAT(backend_.runs, ElementsAre(1, 2, 2, 1, 2));
}

TEST_F(SessionTest, AMeasureEndsWithItsBudget) {
  backend_.Add(1);
  Ready();
  worker::v1::Request request = Of({0});
  request.mutable_measure()->set_rounds(1'000'000'000);
  request.set_time_budget_ms(1);
  EXPECT_TRUE(Ask(request).back().outcome().out_of_time());
}

TEST_F(SessionTest, AMeasureEndsWhereNobodyListens) {
  backend_.Add(1);
  Ready();
  worker::v1::Request request = Of({0});
  request.mutable_measure()->set_rounds(5);
  const absl::Status status = session_.Handle(request, [](const worker::v1::Reply& reply) {
    return reply.has_sample() ? absl::OutOfRangeError("gone") : absl::OkStatus();
  });
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(backend_.runs, ElementsAre(1));
}

TEST_F(SessionTest, MeasureSaysWhatWasNotBlocked) {
  backend_.Add(5);
  backend_.blocks = false;
  Ready();
  const auto replies = Measure({0});
  EXPECT_FALSE(replies[2].sample().blocked());
}

TEST_F(SessionTest, WhatKeptTheClocksDownWhileMeasuringIsSaidAfterwards) {
  backend_.Add(5);
  backend_.look.conditions.known = true;
  backend_.look.hot_ns = 1'000'000;
  Ready();
  auto replies = Measure({0});
  EXPECT_THAT(replies[0].conditions().clock_reasons(), IsEmpty());
  EXPECT_THAT(replies[3].conditions().clock_reasons(), IsEmpty());
  backend_.hot_ns_between_looks = 5;
  replies = Measure({0});
  EXPECT_THAT(replies[0].conditions().clock_reasons(), IsEmpty());
  EXPECT_THAT(replies[3].conditions().clock_reasons(),
              ElementsAre(convtune::v1::CLOCK_REASON_THERMAL_SLOWDOWN));
  backend_.hot_ns_between_looks = 0;
  backend_.capped_ns_between_looks = 5;
  EXPECT_THAT(Measure({0})[3].conditions().clock_reasons(),
              ElementsAre(convtune::v1::CLOCK_REASON_POWER_CAP));
}

TEST_F(SessionTest, MeasurePassesLaunchAndCacheStateOn) {
  backend_.Add(3);
  Ready();
  Measure({0});
  EXPECT_EQ(backend_.how.launch(), convtune::v1::LAUNCH_MODE_EAGER);
  EXPECT_EQ(backend_.how.cache_state(), convtune::v1::CACHE_STATE_INPUT_HOT);
  worker::v1::Request request = Of({0});
  request.mutable_measure()->set_rounds(1);
  request.mutable_measure()->set_launch(convtune::v1::LAUNCH_MODE_GRAPH_CAPTURE);
  request.mutable_measure()->set_cache_state(convtune::v1::CACHE_STATE_COLD);
  EXPECT_TRUE(Ask(request).back().outcome().ok());
  EXPECT_EQ(backend_.how.launch(), convtune::v1::LAUNCH_MODE_GRAPH_CAPTURE);
  EXPECT_EQ(backend_.how.cache_state(), convtune::v1::CACHE_STATE_COLD);
}

TEST_F(SessionTest, MeasureRefusesNumbersThatItDoesNotKnow) {
  backend_.Add(3);
  Ready();
  worker::v1::Request request = Of({0});
  request.mutable_measure()->set_cache_state(static_cast<convtune::v1::CacheState>(9));
  const auto replies = Ask(request);
  EXPECT_FALSE(replies.back().outcome().ok());
  EXPECT_THAT(replies.back().outcome().message(), HasSubstr("cache_state"));
  EXPECT_THAT(backend_.runs, IsEmpty());
}

TEST_F(SessionTest, CheckTouchesAndReportsEach) {
  FakeCandidate& wrong = backend_.Add(3);
  wrong.checked->set_error(0.5);
  wrong.checked->set_gpu_us(12);
  backend_.Add(4).checked = absl::InternalError("it fell over");
  Ready();
  const auto replies = Check({1, 0});
  ASSERT_THAT(replies, SizeIs(5));
  EXPECT_TRUE(replies[0].has_touching());
  EXPECT_EQ(replies[0].index(), 1);
  EXPECT_EQ(replies[1].index(), 1);
  EXPECT_EQ(replies[1].checked().error_message(), "it fell over");
  EXPECT_TRUE(replies[2].has_touching());
  EXPECT_EQ(replies[2].index(), 0);
  const worker::v1::Checked& checked = replies[3].checked();
  EXPECT_EQ(checked.error_message(), "");
  EXPECT_EQ(checked.error(), 0.5);
  EXPECT_EQ(checked.gpu_us(), 12);
  EXPECT_TRUE(replies[4].outcome().ok());
}

TEST_F(SessionTest, CheckNeedsPreparedCandidates) {
  backend_.Add(3);
  Hello();
  Open();
  const auto replies = Check({0});
  ASSERT_THAT(replies, SizeIs(1));
  EXPECT_THAT(replies[0].outcome().message(), HasSubstr("indexes[0]"));
  EXPECT_THAT(backend_.checks, IsEmpty());
}

TEST_F(SessionTest, EachFailureIsRecoveredFromBeforeItIsReported) {
  FakeCandidate& built = backend_.Add(1);
  built.checked = absl::InternalError("it fell over");
  built.runs_until_failure = 0;
  backend_.Add(2).prepare = absl::InternalError("cudaErrorIllegalAddress");
  backend_.end.set_message("set x: CUDNN_STATUS_BAD_PARAM");
  Hello();
  int before = 0;  // recoveries
  const auto recovered = [&] {
    const int count = backend_.recoveries - before;
    before = backend_.recoveries;
    return count;
  };
  Open();
  EXPECT_EQ(recovered(), 1);
  Prepare({0});
  EXPECT_EQ(recovered(), 0);
  Prepare({1});
  EXPECT_EQ(recovered(), 1);
  Check({0});
  EXPECT_EQ(recovered(), 1);
  Measure({0});
  EXPECT_EQ(recovered(), 1);
  backend_.begin = absl::InternalError("cudaErrorIllegalAddress");
  EXPECT_FALSE(Check({0}).back().outcome().ok());
  EXPECT_EQ(recovered(), 1);
  EXPECT_FALSE(Measure({0}).back().outcome().ok());
  EXPECT_EQ(recovered(), 1);
  backend_.open = absl::InternalError("cudaErrorIllegalAddress");
  EXPECT_FALSE(Open().back().outcome().ok());
  EXPECT_EQ(recovered(), 1);
}

TEST_F(SessionTest, ConditionsSayWhatTheRunsCameTo) {
  backend_.Add(1);
  Ready();
  backend_.retried_runs = 2;
  backend_.unblocked = "launches, after eng1, eng2, eng3 gave up";
  const auto replies = Measure({0});
  const convtune::v1::Conditions& conditions = replies[replies.size() - 2].conditions();
  EXPECT_FALSE(conditions.known());
  EXPECT_EQ(conditions.retried_runs(), 2);
  EXPECT_EQ(conditions.unblocked(), "launches, after eng1, eng2, eng3 gave up");
}

TEST_F(SessionTest, ReadConditionsSendsWhatTheBackendSees) {
  backend_.look.conditions = {.known = true, .other_processes = 2, .clock_reasons = 4};
  backend_.look.conditions.compute_mode = ComputeMode::kExclusiveProcess;
  Hello();
  worker::v1::Request request;
  request.mutable_read_conditions();
  const auto replies = Ask(request);
  ASSERT_THAT(replies, SizeIs(2));
  EXPECT_TRUE(replies[0].conditions().known());
  EXPECT_EQ(replies[0].conditions().other_processes(), 2);
  EXPECT_THAT(replies[0].conditions().clock_reasons(),
              ElementsAre(convtune::v1::CLOCK_REASON_POWER_CAP));
  EXPECT_EQ(replies[0].conditions().compute_mode(), convtune::v1::COMPUTE_MODE_EXCLUSIVE_PROCESS);
  EXPECT_TRUE(replies[1].outcome().ok());
}

TEST_F(SessionTest, AFailedSendEndsARequest) {
  backend_.Add(1);
  backend_.Add(2);
  Hello();
  worker::v1::Request request;
  *request.mutable_open_problem() = DefaultOpen();
  int sent = 0;
  const absl::Status status = session_.Handle(request, [&sent](const worker::v1::Reply&) {
    ++sent;
    return absl::OutOfRangeError("gone");
  });
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(sent, 1);
}

}  // namespace
}  // namespace convtune::worker

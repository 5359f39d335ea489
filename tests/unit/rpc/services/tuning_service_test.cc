#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <future>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "grpcpp/client_context.h"
#include "proto/base/clock.h"
#include "server/rpc/http2/limits.h"
#include "server/rpc/messages/page.h"
#include "tests/unit/rpc/rpc_test_server.h"

namespace convtune::rpc::services {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Stub = v1::TuningService::Stub;

int CountThreads() {
  std::ifstream status("/proc/self/status");
  std::string word;
  while (status >> word) {
    if (word == "Threads:") {
      int threads = 0;
      status >> threads;
      return threads;
    }
  }
  return -1;
}

constexpr char kBatchGet[] = "/convtune.v1.TuningService/BatchGet";

// One asynchronous BatchGet.
struct Call {
  void Start(v1::TuningService::Stub* stub, const v1::BatchGetRequest& message) {
    request = message;
    stub->async()->BatchGet(&context, &request, &response,
                            [this](grpc::Status status) { done.set_value(std::move(status)); });
  }
  grpc::Status Wait() { return done.get_future().get(); }

  grpc::ClientContext context;
  v1::BatchGetRequest request;
  v1::BatchGetResponse response;
  std::promise<grpc::Status> done;
};

TEST(BatchGet, AnswersInRequestOrder) {
  TestServer server;
  server.tuner.answer_at_once = true;
  v1::BatchGetResponse response;
  const grpc::Status status =
      Invoke(*server.stub, &Stub::BatchGet, GetRequest({kHit, kMiss, kHit}), &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  ASSERT_EQ(response.results_size(), 3);
  EXPECT_TRUE(response.results(0).has_answer());
  EXPECT_EQ(response.results(1).miss().reason(), v1::MISS_REASON_NOT_FOUND);
  EXPECT_TRUE(response.results(2).has_answer());
  EXPECT_EQ(response.environment().gpu_model(), "NVIDIA H200");
  EXPECT_TRUE(response.environment().current());
}

TEST(BatchGet, RefusesWithEveryFieldAtOnce) {
  TestServer server;
  v1::BatchGetRequest request = GetRequest({kHit, "fwd,wat=1"});
  request.set_environment("H 200");
  request.set_on_miss(static_cast<v1::OnMiss>(9));
  v1::BatchGetResponse response;
  const grpc::Status status = Invoke(*server.stub, &Stub::BatchGet, request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(BadFields(status),
              testing::IsSupersetOf({"environment", "problems[1].text", "on_miss"}));
}

TEST(BatchGet, ManyViolationsStillReachTheCaller) {
  TestServer server;
  v1::BatchGetResponse response;
  const grpc::Status status =
      Invoke(*server.stub, &Stub::BatchGet,
             GetRequest(std::vector<std::string>(5000, "fwd,\xE2\x82\xAC=1")), &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << status.error_message();
  EXPECT_EQ(BadFields(status).back(), "...");
}

TEST(BatchGet, SaysThatATextMayNotBeUtf8) {
  TestServer server;
  const grpc::Status status = SendRaw(server, kBatchGet,
                                      std::string("\x12\x05\x12\x03"
                                                  "f\xFFw"));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(BadFields(status), ElementsAre("request"));
  EXPECT_THAT(status.error_message(), HasSubstr("UTF-8"));
}

TEST(BatchGet, RefusesBytesThatAreNoMessage) {
  TestServer server;
  const grpc::Status status = SendRaw(server, kBatchGet, "\xFF\xFF\xFF\xFF");
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(BadFields(status), ElementsAre("request"));
}

TEST(BatchGet, RefusesAMessageBeyondTheLimit) {
  TestServer server;
  const grpc::Status status = SendRaw(
      server, kBatchGet, std::string(static_cast<size_t>(http2::kMaxRequestBytes) + 1, 'x'));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr(std::to_string(http2::kMaxRequestBytes)));
}

TEST(BatchGet, CancelAbandonsTheLookup) {
  TestServer server;
  Call call;
  call.Start(server.stub.get(), GetRequest({kMiss}));
  WaitUntil([&] { return server.tuner.waiting() == 1; });
  call.context.TryCancel();
  EXPECT_EQ(call.Wait().error_code(), grpc::StatusCode::CANCELLED);
  WaitUntil([&] { return server.tuner.abandoned() == 1; });
  EXPECT_EQ(server.tuner.waiting(), 0u);
}

TEST(BatchGet, DeadlineLeavesTheWorkQueued) {
  TestServer server;
  Call call;
  call.context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(300));
  call.Start(server.stub.get(), GetRequest({kMiss}));
  EXPECT_EQ(call.Wait().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  // The server shuts down only after the call has ended on its side too.
  server.server->Shutdown(SteadyTime::InfiniteFuture());
  WaitUntil([&] { return server.tuner.left() == 1; });
  EXPECT_EQ(server.tuner.abandoned(), 0);
}

TEST(BatchGet, TunersErrorsKeepTheirCodes) {
  TestServer server;
  server.tuner.failure = absl::FailedPreconditionError("no environment");
  v1::BatchGetResponse response;
  const grpc::Status status = Invoke(*server.stub, &Stub::BatchGet, GetRequest({kHit}), &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(status.error_message(), "no environment");
  EXPECT_FALSE(status.error_details().empty());
}

TEST(BatchGet, AThousandWaitingCallersTakeNoThreads) {
  constexpr size_t kCallers = 1000;
  TestServer server;
  std::vector<std::unique_ptr<Call>> calls;
  for (size_t i = 0; i < kCallers; ++i) {
    calls.push_back(std::make_unique<Call>());
    calls.back()->Start(server.stub.get(), GetRequest({kHit}));
  }
  WaitUntil([&] { return server.tuner.waiting() == kCallers; });
  EXPECT_LT(CountThreads(), 100);
  server.tuner.Release();
  for (const auto& call : calls) {
    EXPECT_TRUE(call->Wait().ok());
    EXPECT_TRUE(call->response.results(0).has_answer());
  }
}

TEST(BatchGet, EchoesTheRequestId) {
  TestServer server;
  server.tuner.answer_at_once = true;
  grpc::ClientContext context;
  context.AddMetadata("x-request-id", "abc-123");
  v1::BatchGetResponse response;
  ASSERT_TRUE(server.stub->BatchGet(&context, GetRequest({kHit}), &response).ok());
  const auto& metadata = context.GetServerInitialMetadata();
  const auto found = metadata.find("x-request-id");
  ASSERT_NE(found, metadata.end());
  EXPECT_EQ(std::string(found->second.data(), found->second.size()), "abc-123");
}

TEST(Jobs, CreateGetListCancel) {
  TestServer server;
  v1::TuningJob job;
  v1::CreateTuningJobRequest create;
  create.add_problems()->set_text(kHit);
  ASSERT_TRUE(Invoke(*server.stub, &Stub::CreateTuningJob, create, &job).ok());
  EXPECT_EQ(job.state(), v1::JOB_STATE_QUEUED);
  EXPECT_EQ(job.problem_count(), 1);
  const std::string name = job.name();
  v1::GetTuningJobRequest get;
  get.set_name(name);
  ASSERT_TRUE(Invoke(*server.stub, &Stub::GetTuningJob, get, &job).ok());
  EXPECT_EQ(job.name(), name);
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(Invoke(*server.stub, &Stub::CreateTuningJob, create, &job).ok());
  }
  v1::ListTuningJobsRequest list;
  list.set_page_size(3);
  v1::ListTuningJobsResponse page;
  ASSERT_TRUE(Invoke(*server.stub, &Stub::ListTuningJobs, list, &page).ok());
  EXPECT_EQ(page.jobs_size(), 3);
  list.set_page_token(page.next_page_token());
  ASSERT_TRUE(Invoke(*server.stub, &Stub::ListTuningJobs, list, &page).ok());
  ASSERT_EQ(page.jobs_size(), 1);
  EXPECT_EQ(page.jobs(0).name(), name) << "the oldest is the last";
  EXPECT_EQ(page.next_page_token(), "");
  v1::CancelTuningJobRequest cancel;
  cancel.set_name(name);
  ASSERT_TRUE(Invoke(*server.stub, &Stub::CancelTuningJob, cancel, &job).ok());
  EXPECT_EQ(job.state(), v1::JOB_STATE_CANCELLED);
  get.set_name("jobs/5");
  EXPECT_EQ(Invoke(*server.stub, &Stub::GetTuningJob, get, &job).error_code(),
            grpc::StatusCode::NOT_FOUND);
}

TEST(Tunings, GetListDelete) {
  TestServer server;
  v1::GetTuningRequest get;
  get.mutable_problem()->set_text(kHit);
  v1::Tuning tuning;
  ASSERT_TRUE(Invoke(*server.stub, &Stub::GetTuning, get, &tuning).ok());
  EXPECT_EQ(tuning.candidates_size(), 2);
  EXPECT_EQ(tuning.winner(), "graph:eng34,k2=5");
  EXPECT_EQ(tuning.environment().gpu_model(), "NVIDIA H200");
  ASSERT_EQ(tuning.quarantine_size(), 1);
  EXPECT_EQ(tuning.quarantine(0).candidate(), "legacy:algo3,math0");
  EXPECT_EQ(tuning.quarantine(0).reason(), v1::QUARANTINE_REASON_HUNG);
  EXPECT_EQ(tuning.quarantine(0).message(), "hung with a budget of 2s");
  EXPECT_EQ(tuning.quarantine(0).create_time().seconds(), 7);
  EXPECT_EQ(tuning.quarantine(0).hang_budget().seconds(), 2);
  EXPECT_EQ(tuning.quarantine(0).checker_version(), 4);
  v1::ListTuningsRequest list;
  list.set_text_filter("f");
  v1::ListTuningsResponse page;
  ASSERT_TRUE(Invoke(*server.stub, &Stub::ListTunings, list, &page).ok());
  ASSERT_EQ(page.tunings_size(), 1);
  EXPECT_EQ(page.tunings(0).incomplete_message(), "f");
  EXPECT_EQ(page.tunings(0).environment().gpu_model(), "NVIDIA H200");
  v1::DeleteTuningRequest remove;
  remove.add_problems()->set_text(kHit);
  remove.add_problems()->set_text(kMiss);
  v1::DeleteTuningResponse removed;
  ASSERT_TRUE(Invoke(*server.stub, &Stub::DeleteTuning, remove, &removed).ok());
  EXPECT_EQ(removed.deleted_count(), 2);
  remove.set_only_from_fleet(true);
  ASSERT_TRUE(Invoke(*server.stub, &Stub::DeleteTuning, remove, &removed).ok());
  EXPECT_EQ(removed.deleted_count(), 1);
}

TEST(Pins, PinListUnpin) {
  TestServer server;
  v1::PinRequest pin;
  pin.mutable_problem()->set_text(kHit);
  pin.set_candidate("graph:eng1,k3=1,k2=0");
  pin.set_reason("why");
  pin.mutable_ttl()->set_seconds(60);
  v1::PinRecord record;
  ASSERT_TRUE(Invoke(*server.stub, &Stub::Pin, pin, &record).ok());
  EXPECT_EQ(record.candidate(), "graph:eng1,k2=0,k3=1");
  EXPECT_EQ(record.environment(), "nvidia-h200");
  EXPECT_EQ(record.expire_time().seconds() - record.create_time().seconds(), 60);
  v1::ListPinsResponse pins;
  ASSERT_TRUE(Invoke(*server.stub, &Stub::ListPins, {}, &pins).ok());
  EXPECT_EQ(pins.pins_size(), 1);
  v1::UnpinRequest unpin;
  unpin.mutable_problem()->set_text(kHit);
  v1::UnpinResponse unpinned;
  EXPECT_TRUE(Invoke(*server.stub, &Stub::Unpin, unpin, &unpinned).ok());
}

TEST(Bans, CreateListDelete) {
  TestServer server;
  v1::CreateBanRequest create;
  create.mutable_ban()->set_candidate("eng34,k2=*");
  create.mutable_ban()->set_author("ada");
  create.mutable_ban()->set_reason("why");
  create.set_dry_run(true);
  v1::CreateBanResponse created;
  ASSERT_TRUE(Invoke(*server.stub, &Stub::CreateBan, create, &created).ok());
  EXPECT_EQ(created.ban().name(), "");
  create.set_dry_run(false);
  create.set_max_changes(1);
  ASSERT_TRUE(Invoke(*server.stub, &Stub::CreateBan, create, &created).ok());
  EXPECT_EQ(created.ban().name(), "bans/3");
  EXPECT_EQ(created.ban().candidate(), "graph:eng34,k2=*");
  EXPECT_EQ(created.changes_size(), 1);
  Ban listed;
  listed.number = 3;
  listed.candidate = CandidatePattern::Parse("eng34").value();
  listed.reason = "why";
  listed.fleet_ban = 5;
  server.tuner.bans = {listed};
  v1::ListBansResponse bans;
  ASSERT_TRUE(Invoke(*server.stub, &Stub::ListBans, {}, &bans).ok());
  ASSERT_EQ(bans.bans_size(), 1);
  EXPECT_EQ(bans.bans(0).tuning_count(), 7);
  EXPECT_EQ(bans.bans(0).fleet_ban(), 5);
  v1::GetTuningRequest get;
  get.mutable_problem()->set_text(kHit);
  v1::Tuning tuning;
  ASSERT_TRUE(Invoke(*server.stub, &Stub::GetTuning, get, &tuning).ok());
  ASSERT_EQ(tuning.banned_size(), 1);
  EXPECT_EQ(tuning.banned(0).candidate(), "graph:eng34,k2=5");
  EXPECT_EQ(tuning.banned(0).ban(), "bans/3");
  EXPECT_EQ(tuning.banned(0).reason(), "why");
  EXPECT_EQ(tuning.banned(0).fleet_ban(), 5);
  EXPECT_NE(tuning.winner(), "graph:eng34,k2=5");
  v1::DeleteBanRequest remove;
  remove.set_name("bans/3");
  remove.set_fleet_ban(5);
  v1::DeleteBanResponse removed;
  EXPECT_TRUE(Invoke(*server.stub, &Stub::DeleteBan, remove, &removed).ok());
  EXPECT_EQ(server.tuner.deleted_fleet_ban, 5);
  remove.set_name("bans/4");
  EXPECT_EQ(Invoke(*server.stub, &Stub::DeleteBan, remove, &removed).error_code(),
            grpc::StatusCode::NOT_FOUND);
}

TEST(Lists, EnvironmentsAndDevices) {
  TestServer server;
  v1::ListEnvironmentsResponse environments;
  ASSERT_TRUE(Invoke(*server.stub, &Stub::ListEnvironments, {}, &environments).ok());
  ASSERT_EQ(environments.environments_size(), 1);
  EXPECT_TRUE(environments.environments(0).current());
  v1::ListDevicesResponse devices;
  ASSERT_TRUE(Invoke(*server.stub, &Stub::ListDevices, {}, &devices).ok());
  ASSERT_EQ(devices.devices_size(), 1);
  EXPECT_EQ(devices.devices(0).state(), v1::DEVICE_STATE_READY);
}

TEST(Pages, OfPinsOfMoreThanAReply) {
  TestServer server;
  server.tuner.rows = 12000;
  const auto rows = [](const auto& page, auto* texts) {
    for (const v1::PinRecord& pin : page.pins()) texts->push_back(pin.problem_text());
  };
  const auto all = AllPages(*server.stub, &Stub::ListPins, {}, rows);
  ASSERT_EQ(all.size(), 12000U);
  EXPECT_EQ(std::set<std::string>(all.begin(), all.end()).size(), 12000U);
  v1::ListPinsRequest small;
  small.set_page_size(5000);
  EXPECT_EQ(AllPages(*server.stub, &Stub::ListPins, small, rows), all);
}

TEST(Pages, OfJobsOfMoreThanAReply) {
  constexpr int kJobs = 1500;
  TestServer server;
  std::vector<std::string> names;
  for (int i = 0; i < kJobs; ++i) {
    jobs::JobTable& table = server.tuner.jobs();
    const int problems = jobs::JobTable::kKeptFailures + 1;
    names.push_back(table.Create("nvidia-h200", problems, 0, "")->job.name());
    for (int n = 1; n < problems; ++n) {
      table.ProblemDone(names.back(), "fwd", {absl::InternalError(std::string(500, 'f'))});
    }
  }
  std::reverse(names.begin(), names.end());
  v1::ListTuningJobsResponse first;
  ASSERT_TRUE(Invoke(*server.stub, &Stub::ListTuningJobs, {}, &first).ok());
  EXPECT_EQ(first.jobs_size(), 100);
  v1::ListTuningJobsRequest request;
  request.set_page_size(1000);
  const auto all =
      AllPages(*server.stub, &Stub::ListTuningJobs, request, [](const auto& page, auto* texts) {
        for (const v1::TuningJob& job : page.jobs()) texts->push_back(job.name());
      });
  EXPECT_EQ(all, names);
}

TEST(Pages, OfEnvironmentsOfMoreThanAReply) {
  TestServer server;
  server.tuner.rows = 20000;
  const auto all =
      AllPages(*server.stub, &Stub::ListEnvironments, {}, [](const auto& page, auto* texts) {
        for (const v1::Environment& one : page.environments()) texts->push_back(one.text());
      });
  EXPECT_EQ(all.size(), 20000U);
  EXPECT_EQ(std::set<std::string>(all.begin(), all.end()).size(), 20000U);
}

TEST(Pages, OfTuningsEndBehindTheLastThatTheReplyHasRoomFor) {
  TestServer server;
  server.tuner.rows = 1000;
  v1::ListTuningsResponse page;
  const grpc::Status status = Invoke(*server.stub, &Stub::ListTunings, {}, &page);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_GT(page.tunings_size(), 700);
  EXPECT_LT(page.tunings_size(), 1000);
  EXPECT_EQ(page.next_page_token(),
            messages::KeyToken(FakeTuner::Row(static_cast<size_t>(page.tunings_size()) - 1)));
}

// The fields that are named where a method is asked for the page of no token.
template <typename Request, typename Response>
std::vector<std::string> BadToken(TestServer& server, Method<Stub, Request, Response> method) {
  Request request;
  request.set_page_token("not a token");
  Response page;
  return BadFields(Invoke(*server.stub, method, request, &page));
}

TEST(Pages, ATokenOfAnotherListIsRefused) {
  TestServer server;
  EXPECT_THAT(BadToken(server, &Stub::ListPins), ElementsAre("page_token"));
  EXPECT_THAT(BadToken(server, &Stub::ListTuningJobs), ElementsAre("page_token"));
  EXPECT_THAT(BadToken(server, &Stub::ListTunings), ElementsAre("page_token"));
}

TEST(Errors, EveryMethodPassesTheTunersErrorOn) {
  TestServer server;
  server.tuner.failure = absl::NotFoundError("not here");
  v1::TuningJob job;
  v1::CreateTuningJobRequest create;
  create.add_problems()->set_text(kHit);
  v1::GetTuningRequest get;
  get.mutable_problem()->set_text(kHit);
  v1::Tuning tuning;
  v1::UnpinRequest unpin;
  unpin.mutable_problem()->set_text(kHit);
  v1::UnpinResponse unpinned;
  for (const grpc::Status& status : {Invoke(*server.stub, &Stub::CreateTuningJob, create, &job),
                                     Invoke(*server.stub, &Stub::GetTuning, get, &tuning),
                                     Invoke(*server.stub, &Stub::Unpin, unpin, &unpinned)}) {
    EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
    EXPECT_EQ(status.error_message(), "not here");
  }
}

}  // namespace
}  // namespace convtune::rpc::services

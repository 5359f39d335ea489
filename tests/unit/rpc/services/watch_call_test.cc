#include <gtest/gtest.h>

#include <vector>

#include "grpcpp/client_context.h"
#include "tests/unit/rpc/rpc_test_server.h"

namespace convtune::rpc::services {
namespace {

v1::TuningJob Progress(v1::JobState state, int done) {
  v1::TuningJob job = FakeTuner::Job(state);
  job.set_current_candidates_done(done);
  return job;
}

v1::WatchTuningJobRequest Request() {
  v1::WatchTuningJobRequest request;
  request.set_name("jobs/1");
  return request;
}

TEST(WatchTuningJob, SendsTheStateAtOnceAndTheEndLast) {
  TestServer server;
  grpc::ClientContext context;
  const auto reader = server.stub->WatchTuningJob(&context, Request());
  v1::TuningJob job;
  ASSERT_TRUE(reader->Read(&job));
  EXPECT_EQ(job.state(), v1::JOB_STATE_QUEUED);
  WaitUntil([&] { return server.tuner.watchers() == 1; });
  server.tuner.Change(Progress(v1::JOB_STATE_RUNNING, 1));
  ASSERT_TRUE(reader->Read(&job));
  EXPECT_EQ(job.state(), v1::JOB_STATE_RUNNING);
  server.tuner.Change(Progress(v1::JOB_STATE_SUCCEEDED, 2));
  ASSERT_TRUE(reader->Read(&job));
  EXPECT_EQ(job.state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_FALSE(reader->Read(&job));
  EXPECT_TRUE(reader->Finish().ok());
  WaitUntil([&] { return server.tuner.watchers() == 0; });
}

TEST(WatchTuningJob, MergesChangesInOrderAndKeepsTheLast) {
  constexpr int kChanges = 2000;
  TestServer server;
  grpc::ClientContext context;
  const auto reader = server.stub->WatchTuningJob(&context, Request());
  WaitUntil([&] { return server.tuner.watchers() == 1; });
  for (int i = 1; i <= kChanges; ++i) {
    server.tuner.Change(Progress(v1::JOB_STATE_RUNNING, i));
  }
  server.tuner.Change(Progress(v1::JOB_STATE_FAILED, kChanges + 1));
  int last = -1;
  v1::TuningJob job;
  while (reader->Read(&job)) {
    EXPECT_GT(job.current_candidates_done(), last);
    last = job.current_candidates_done();
  }
  EXPECT_EQ(last, kChanges + 1);
  EXPECT_EQ(job.state(), v1::JOB_STATE_FAILED);
  EXPECT_TRUE(reader->Finish().ok());
}

TEST(WatchTuningJob, AJobThatHasEndedIsSentOnce) {
  TestServer server;
  server.tuner.watch_start = Progress(v1::JOB_STATE_CANCELLED, 0);
  grpc::ClientContext context;
  const auto reader = server.stub->WatchTuningJob(&context, Request());
  v1::TuningJob job;
  EXPECT_TRUE(reader->Read(&job));
  EXPECT_FALSE(reader->Read(&job));
  EXPECT_TRUE(reader->Finish().ok());
  WaitUntil([&] { return server.tuner.watchers() == 0; });
}

TEST(WatchTuningJob, AJobThatTheDaemonsEndInterruptedIsUnavailable) {
  TestServer server;
  grpc::ClientContext context;
  const auto reader = server.stub->WatchTuningJob(&context, Request());
  v1::TuningJob job;
  ASSERT_TRUE(reader->Read(&job));
  WaitUntil([&] { return server.tuner.watchers() == 1; });
  server.tuner.Change(Progress(v1::JOB_STATE_CANCELLED, 0), /*interrupted=*/true);
  EXPECT_FALSE(reader->Read(&job)) << "it is not told as one that was cancelled";
  const grpc::Status status = reader->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_NE(status.error_message().find("draining"), std::string::npos);
  WaitUntil([&] { return server.tuner.watchers() == 0; });
}

TEST(WatchTuningJob, CancelStopsWatching) {
  TestServer server;
  grpc::ClientContext context;
  const auto reader = server.stub->WatchTuningJob(&context, Request());
  v1::TuningJob job;
  ASSERT_TRUE(reader->Read(&job));
  context.TryCancel();
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  WaitUntil([&] { return server.tuner.watchers() == 0; });
}

TEST(WatchTuningJob, RefusesABadNameAndAnUnknownJob) {
  TestServer server;
  v1::TuningJob job;
  {
    grpc::ClientContext context;
    const auto reader = server.stub->WatchTuningJob(&context, v1::WatchTuningJobRequest());
    EXPECT_FALSE(reader->Read(&job));
    EXPECT_EQ(BadFields(reader->Finish()), std::vector<std::string>{"name"});
  }
  server.tuner.failure = absl::NotFoundError("no such job");
  grpc::ClientContext context;
  const auto reader = server.stub->WatchTuningJob(&context, Request());
  EXPECT_FALSE(reader->Read(&job));
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::NOT_FOUND);
}

}  // namespace
}  // namespace convtune::rpc::services

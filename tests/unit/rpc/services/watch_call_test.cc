#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "grpcpp/client_context.h"
#include "tests/unit/rpc/rpc_test_server.h"

namespace convtune::rpc::services {
namespace {

constexpr char kProblem[] = "fwd,x=1x2x3x3,w=4x2x1x1";

// A server that has a job of one problem.
struct JobServer : TestServer {
  void End(const absl::Status& status) { table.ProblemDone(name, kProblem, {status}); }
  // One caller watches it, and reads its states into `state`.
  void Watch() {
    v1::WatchTuningJobRequest request;
    request.set_name(name);
    reader = stub->WatchTuningJob(&context, request);
  }
  bool Read() { return reader->Read(&state); }

  jobs::JobTable& table = tuner.jobs();
  const std::string name = table.Create("nvidia-h200", 1, 0, "")->job.name();
  grpc::ClientContext context;
  std::unique_ptr<grpc::ClientReader<v1::TuningJob>> reader;
  v1::TuningJob state;
};

TEST(WatchTuningJob, SendsTheStateAtOnceAndTheEndLast) {
  JobServer server;
  server.Watch();
  ASSERT_TRUE(server.Read());
  EXPECT_EQ(server.state.state(), v1::JOB_STATE_QUEUED);
  server.table.Progress(server.name, kProblem, {1, 2});
  ASSERT_TRUE(server.Read());
  EXPECT_EQ(server.state.state(), v1::JOB_STATE_RUNNING);
  server.End(absl::OkStatus());
  ASSERT_TRUE(server.Read());
  EXPECT_EQ(server.state.state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_FALSE(server.Read());
  EXPECT_TRUE(server.reader->Finish().ok());
}

TEST(WatchTuningJob, MergesChangesInOrderAndKeepsTheLast) {
  constexpr int kChanges = 2000;
  JobServer server;
  server.Watch();
  ASSERT_TRUE(server.Read());
  for (int i = 1; i <= kChanges; ++i) server.table.Progress(server.name, kProblem, {i, kChanges});
  server.End(absl::NotFoundError("no candidate ran"));
  int last = 0;
  int messages = 0;
  while (server.Read()) {
    ++messages;
    if (jobs::HasEnded(server.state)) continue;
    EXPECT_GT(server.state.current_candidates_done(), last);
    last = server.state.current_candidates_done();
  }
  EXPECT_LE(messages, kChanges + 1);
  EXPECT_EQ(server.state.state(), v1::JOB_STATE_FAILED);
  EXPECT_TRUE(server.reader->Finish().ok());
}

TEST(WatchTuningJob, AJobThatHasEndedIsSentOnce) {
  JobServer server;
  ASSERT_TRUE(server.table.Cancel(server.name).ok());
  server.Watch();
  EXPECT_TRUE(server.Read());
  EXPECT_FALSE(server.Read());
  EXPECT_TRUE(server.reader->Finish().ok());
}

TEST(WatchTuningJob, AJobThatTheDaemonsEndInterruptedIsUnavailable) {
  JobServer server;
  server.Watch();
  ASSERT_TRUE(server.Read());
  server.End(absl::CancelledError("draining"));
  EXPECT_FALSE(server.Read()) << "it is not told as one that was cancelled";
  const grpc::Status status = server.reader->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(status.error_message(), testing::HasSubstr("draining"));
}

TEST(WatchTuningJob, CancelStopsWatching) {
  JobServer server;
  server.Watch();
  ASSERT_TRUE(server.Read());
  server.context.TryCancel();
  EXPECT_EQ(server.reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  server.server = nullptr;  // and the call with it, which must not be told any more
  server.table.Progress(server.name, kProblem, {1, 2});
}

TEST(WatchTuningJob, RefusesABadNameAndAnUnknownJob) {
  TestServer server;
  v1::TuningJob job;
  v1::WatchTuningJobRequest request;
  {
    grpc::ClientContext context;
    const auto reader = server.stub->WatchTuningJob(&context, request);
    EXPECT_FALSE(reader->Read(&job));
    EXPECT_EQ(BadFields(reader->Finish()), std::vector<std::string>{"name"});
  }
  request.set_name("jobs/1");
  grpc::ClientContext context;
  const auto reader = server.stub->WatchTuningJob(&context, request);
  EXPECT_FALSE(reader->Read(&job));
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::NOT_FOUND);
}

}  // namespace
}  // namespace convtune::rpc::services

#include "server/rpc/server.h"
#include "proto/base/clock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <future>
#include <string>
#include <vector>

#include "grpcpp/client_context.h"
#include "grpcpp/create_channel.h"
#include "tests/unit/rpc/rpc_test_server.h"

namespace convtune::rpc {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// grpc.health.v1.Health/Check without its .proto: HealthCheckRequest has the
// service's name as field 1, HealthCheckResponse the status as field 1.
std::string Health(const TestServer& server, const std::string& name) {
  std::string request;
  if (!name.empty()) request = std::string("\x0A") + static_cast<char>(name.size()) + name;
  std::string reply;
  const grpc::Status status = SendRaw(server, "/grpc.health.v1.Health/Check", request, &reply);
  if (!status.ok()) return "code " + std::to_string(status.error_code());
  return reply.size() == 2 && reply[1] == 1 ? "SERVING" : "NOT_SERVING";
}

TEST(Server, ASocketsRoleIsThatOfWhoeverConnects) {
  TestServer base;
  base.tuner.answer_at_once = true;
  Server::Options options = base.Options();
  options.listen = {"read=unix:" + base.dir.path("read"), "tune=unix:" + base.dir.path("tune"),
                    "unix:" + base.dir.path("admin")};
  const auto server = Server::Create(options);
  ASSERT_TRUE(server.ok()) << server.status();
  const auto mode = [&base](const char* name) {
    struct stat info {};
    EXPECT_EQ(stat(base.dir.path(name).c_str(), &info), 0) << name;
    return info.st_mode & 07777;
  };
  EXPECT_EQ(mode("read"), 0666u);
  EXPECT_EQ(mode("tune"), 0660u);
  EXPECT_EQ(mode("admin"), 0660u);
  // What each may do: look up, look up and tune, unpin.
  const auto calls = [&base](const char* name) {
    const auto stub = v1::TuningService::NewStub(
        grpc::CreateChannel("unix:" + base.dir.path(name), grpc::InsecureChannelCredentials()));
    std::vector<grpc::StatusCode> codes;
    for (const v1::OnMiss on_miss : {v1::ON_MISS_NONE, v1::ON_MISS_TUNE}) {
      grpc::ClientContext context;
      v1::BatchGetRequest request = GetRequest({kHit});
      request.set_on_miss(on_miss);
      v1::BatchGetResponse response;
      codes.push_back(stub->BatchGet(&context, request, &response).error_code());
    }
    grpc::ClientContext context;
    v1::UnpinResponse response;
    codes.push_back(stub->Unpin(&context, {}, &response).error_code());
    return codes;
  };
  constexpr auto kRefused = grpc::StatusCode::PERMISSION_DENIED;
  constexpr auto kInvalid = grpc::StatusCode::INVALID_ARGUMENT;  // it names no problem
  EXPECT_THAT(calls("read"), ElementsAre(grpc::StatusCode::OK, kRefused, kRefused));
  EXPECT_THAT(calls("tune"), ElementsAre(grpc::StatusCode::OK, grpc::StatusCode::OK, kRefused));
  EXPECT_THAT(calls("admin"), ElementsAre(grpc::StatusCode::OK, grpc::StatusCode::OK, kInvalid));
}

TEST(Server, RefusesASocketThatAnswers) {
  TestServer server;
  const auto second = Server::Create(server.Options());
  EXPECT_EQ(second.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr(server.dir.path("s.sock")));
  grpc::ClientContext context;
  v1::ListDevicesResponse response;
  EXPECT_TRUE(server.stub->ListDevices(&context, {}, &response).ok());
}

TEST(Server, RemovesItsSocketAtTheEnd) {
  TestServer server;
  server.server->Shutdown(SteadyTime::InfinitePast());
  server.server.reset();
  EXPECT_FALSE(std::filesystem::exists(server.dir.path("s.sock")));
}

TEST(Server, TcpWithoutTlsIsRefused) {
  TestServer server;
  Server::Options options = server.Options();
  options.listen = {"localhost:0"};
  const auto created = Server::Create(options);
  EXPECT_EQ(created.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(created.status().message()), HasSubstr("--tls-cert"));
  options.tls.cert = "/dev/null";
  EXPECT_EQ(Server::Create(options).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(Server, NeedsAnAddress) {
  TestServer server;
  Server::Options options = server.Options();
  options.listen.clear();
  EXPECT_EQ(Server::Create(options).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(Server, LivenessAndReadinessAreApart) {
  TestServer server;
  EXPECT_EQ(Health(server, "liveness"), "SERVING");
  for (const char* name : {"readiness", "", "convtune.v1.TuningService"}) {
    EXPECT_EQ(Health(server, name), "NOT_SERVING") << name;
  }
  server.server->SetReady(true);
  for (const char* name : {"liveness", "readiness", "", "convtune.v1.TuningService",
                           "convtune.v1.MaintenanceService"}) {
    EXPECT_EQ(Health(server, name), "SERVING") << name;
  }
  server.server->SetReady(false);
  EXPECT_EQ(Health(server, "liveness"), "SERVING");
  EXPECT_EQ(Health(server, "readiness"), "NOT_SERVING");
  EXPECT_EQ(Health(server, "unknown"), "code 5");
}

TEST(Server, WhoStillWaitsAtTheEndGetsUnavailableWithWords) {
  TestServer server;
  grpc::ClientContext context;
  v1::BatchGetRequest request = GetRequest({kMiss});
  v1::BatchGetResponse response;
  std::promise<grpc::Status> done;
  server.stub->async()->BatchGet(&context, &request, &response, [&done](grpc::Status status) {
    done.set_value(std::move(status));
  });
  WaitUntil([&] { return server.tuner.waiting() == 1; });
  server.server->Shutdown(SteadyTime::Now());
  const grpc::Status status = done.get_future().get();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_NE(status.error_message(), "");
  EXPECT_EQ(server.tuner.waiting(), 0u);
}

}  // namespace
}  // namespace convtune::rpc

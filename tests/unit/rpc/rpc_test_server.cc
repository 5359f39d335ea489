#include "tests/unit/rpc/rpc_test_server.h"

#include <grpc/grpc.h>
#include <gtest/gtest.h>

#include <future>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/support/byte_buffer.h"

namespace convtune::rpc {

TestServer::TestServer() {
  // gRPC stays loaded between tests: its end waits up to 10 s for a poller that a
  // long reply has started.
  static const bool loaded = (grpc_init(), true);
  EXPECT_TRUE(loaded);
  backups = std::make_unique<db::store::Backups>(
      db::store::Backups::Options{&store, &clock, dir.path("backup")});
  absl::StatusOr<std::unique_ptr<Server>> created = Server::Create(Options());
  EXPECT_TRUE(created.ok()) << created.status();
  server = *std::move(created);
  channel = NewChannel();
  stub = v1::TuningService::NewStub(channel);
  maintenance = v1::MaintenanceService::NewStub(channel);
}

Server::Options TestServer::Options() const {
  Server::Options options;
  options.listen = {"unix:" + dir.path("s.sock")};
  options.tuner = const_cast<FakeTuner*>(&tuner);
  options.store = const_cast<FakeStore*>(&store);
  options.clock = &clock;
  options.state_dir = "/state";
  options.backups = backups.get();
  return options;
}

std::shared_ptr<grpc::Channel> TestServer::NewChannel() const {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  arguments.SetMaxSendMessageSize(-1);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return grpc::CreateCustomChannel("unix:" + dir.path("s.sock"), grpc::InsecureChannelCredentials(),
                                   arguments);
}

grpc::Status SendRaw(const TestServer& server, const std::string& method, const std::string& bytes,
                     std::string* reply) {
  grpc::GenericStub stub(server.channel);
  grpc::ClientContext context;
  grpc::Slice slice(bytes);
  grpc::ByteBuffer request(&slice, 1);
  grpc::ByteBuffer response;
  std::promise<grpc::Status> done;
  stub.UnaryCall(&context, method, grpc::StubOptions(), &request, &response,
                 [&done](grpc::Status status) { done.set_value(std::move(status)); });
  grpc::Status status = done.get_future().get();
  grpc::Slice out;
  if (status.ok() && reply != nullptr && response.DumpToSingleSlice(&out).ok()) {
    reply->assign(out.begin(), out.end());
  }
  return status;
}

v1::BatchGetRequest GetRequest(const std::vector<std::string>& problems) {
  v1::BatchGetRequest request;
  for (const std::string& problem : problems) {
    request.add_problems()->set_text(problem);
  }
  return request;
}

std::vector<std::string> BadFields(const grpc::Status& status) {
  google::rpc::Status details;
  EXPECT_TRUE(details.ParseFromString(status.error_details()));
  std::vector<std::string> fields;
  for (const auto& any : details.details()) {
    google::rpc::BadRequest bad;
    if (any.UnpackTo(&bad)) {
      for (const auto& violation : bad.field_violations()) {
        fields.push_back(violation.field());
      }
    }
  }
  return fields;
}

}  // namespace convtune::rpc

// A server in this process, on a socket of its own, over a fake tuner.
#pragma once

#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "convtune/v1/maintenance_service.grpc.pb.h"
#include "convtune/v1/tuning_service.grpc.pb.h"
#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "proto/base/clock.h"
#include "server/rpc/server.h"
#include "tests/fakes/memory_store.h"
#include "tests/unit/rpc/fake_tuner.h"
#include "tests/unit/temp_dir.h"

namespace convtune::rpc {

// A MemoryStore whose maintenance gives what a test says.
class FakeStore : public MemoryStore {
 public:
  v1::CheckDatabaseResponse check;
  v1::CompactDatabaseResponse compaction;
  absl::Status failure;  // of compacting

  absl::StatusOr<v1::CheckDatabaseResponse> Check() override { return check; }
  absl::StatusOr<int64_t> Backup(const std::string&, const std::function<bool()>&) override {
    return 4096;
  }
  absl::StatusOr<v1::CompactDatabaseResponse> Compact() override {
    if (!failure.ok()) return failure;
    return compaction;
  }
  int64_t SizeBytes() override { return 8192; }
  int SchemaVersion() override { return 1; }
};

struct TestServer {
  TestServer();

  std::shared_ptr<grpc::Channel> NewChannel() const;
  Server::Options Options() const;

  TempDir dir;
  FakeTuner tuner;
  FakeStore store;
  SystemClock clock;
  std::unique_ptr<db::store::Backups> backups;
  std::unique_ptr<Server> server;
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<v1::TuningService::Stub> stub;
  std::unique_ptr<v1::MaintenanceService::Stub> maintenance;
};

// Answered by the fake tuner; a 3x3 filter is a miss.
inline constexpr char kHit[] = "fwd,x=1x2x3x3,w=4x2x1x1";
inline constexpr char kMiss[] = "fwd,x=1x2x3x3,w=4x2x3x3,pad=1";

v1::BatchGetRequest GetRequest(const std::vector<std::string>& problems);

// Fields of the BadRequest in the status, in order.
std::vector<std::string> BadFields(const grpc::Status& status);

// Sends bytes as they are; `reply`, unless it is nullptr, gets those of the reply.
grpc::Status SendRaw(const TestServer& server, const std::string& method, const std::string& bytes,
                     std::string* reply = nullptr);

template <typename Stub, typename Request, typename Response>
using Method = grpc::Status (Stub::*)(grpc::ClientContext*, const Request&, Response*);

template <typename Stub, typename Request, typename Response>
grpc::Status Invoke(Stub& stub, Method<Stub, Request, Response> method,
                    const std::type_identity_t<Request>& request, Response* response) {
  grpc::ClientContext context;
  return (stub.*method)(&context, request, response);
}

// What `rows` gives of all pages of a method, each of which a client takes that was
// told nothing of sizes.
template <typename Stub, typename Request, typename Response, typename Rows>
std::vector<std::string> AllPages(Stub& stub, Method<Stub, Request, Response> method,
                                  std::type_identity_t<Request> request, const Rows& rows) {
  std::vector<std::string> all;
  int pages = 0;
  do {
    Response page;
    const grpc::Status status = Invoke(stub, method, request, &page);
    EXPECT_TRUE(status.ok()) << status.error_message();
    if (!status.ok() || ++pages > 50) break;
    EXPECT_LE(page.ByteSizeLong(), size_t{4} << 20);
    rows(page, &all);
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty());
  EXPECT_GT(pages, 1);
  return all;
}

// Waits until `condition` holds; the test runner's own time limit ends it if it
// never does.
template <typename Condition>
void WaitUntil(const Condition& condition) {
  while (!condition()) {
    absl::SleepFor(absl::Milliseconds(2));
  }
}

}  // namespace convtune::rpc

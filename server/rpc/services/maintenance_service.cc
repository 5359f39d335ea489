#include <unistd.h>

#include <fstream>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "server/rpc/messages/proto_converter.h"
#include "server/rpc/services/call.h"
#include "server/rpc/services/services.h"

namespace convtune::rpc::services {
namespace {

constexpr size_t kMaxMaintenanceCalls = 16;

int64_t CountThreads() {
  std::ifstream status("/proc/self/status");
  std::string line;
  while (std::getline(status, line)) {
    absl::string_view value(line);
    int64_t threads = 0;
    if (absl::ConsumePrefix(&value, "Threads:") && absl::SimpleAtoi(value, &threads)) {
      return threads;
    }
  }
  return 0;
}

class MaintenanceService final : public RawService {
 public:
  explicit MaintenanceService(MaintenanceOptions options)
      : RawService(kMaintenanceServiceName),
        options_(std::move(options)),
        start_time_(options_.clock->Now()),
        disk_(kMaxMaintenanceCalls) {
    Unary<v1::GetServerInfoRequest, v1::ServerInfo>(
        "GetServerInfo", nullptr, [this](const v1::GetServerInfoRequest&, v1::ServerInfo* reply) {
          reply->set_version(CONVTUNE_VERSION);
          reply->set_pid(getpid());
          *reply->mutable_start_time() = messages::ToProto(start_time_);
          reply->set_state_dir(options_.state_dir);
          reply->set_schema_version(options_.store->SchemaVersion());
          reply->set_database_bytes(options_.store->SizeBytes());
          reply->set_threads(CountThreads());
          messages::AddStats(options_.tuner->Stats(), reply);
          reply->set_metrics_state(!options_.metrics.built        ? v1::METRICS_STATE_NOT_BUILT
                                   : options_.metrics.url.empty() ? v1::METRICS_STATE_OFF
                                                                  : v1::METRICS_STATE_ON);
          reply->set_metrics_url(options_.metrics.url);
          return grpc::Status::OK;
        });

    Unary<v1::CheckDatabaseRequest, v1::CheckDatabaseResponse>(
        "CheckDatabase", &disk_,
        [this](const v1::CheckDatabaseRequest&, v1::CheckDatabaseResponse* reply) {
          const absl::Time start = options_.clock->Now();
          const absl::StatusOr<db::StoreCheck> check = options_.store->Check();
          if (check.ok()) {
            *reply = messages::ToProto(*check, options_.clock->Now() - start);
          }
          return messages::ToGrpcStatus(check.status());
        });

    Unary<v1::BackupDatabaseRequest, v1::BackupDatabaseResponse>(
        "BackupDatabase", &disk_,
        [this](const v1::BackupDatabaseRequest& request, v1::BackupDatabaseResponse* reply) {
          const absl::StatusOr<int64_t> bytes = options_.store->Backup(request.path());
          reply->set_bytes(bytes.value_or(0));
          return messages::ToGrpcStatus(bytes.status());
        });

    Unary<v1::CompactDatabaseRequest, v1::CompactDatabaseResponse>(
        "CompactDatabase", &disk_,
        [this](const v1::CompactDatabaseRequest&, v1::CompactDatabaseResponse* reply) {
          const absl::StatusOr<db::StoreCompaction> compaction = options_.store->Compact();
          if (compaction.ok()) {
            *reply = messages::ToProto(*compaction);
          }
          return messages::ToGrpcStatus(compaction.status());
        });
  }

 private:
  const MaintenanceOptions options_;
  const absl::Time start_time_;
  WorkQueue disk_;
};

}  // namespace

std::unique_ptr<grpc::Service> NewMaintenanceService(MaintenanceOptions options) {
  return std::make_unique<MaintenanceService>(std::move(options));
}

}  // namespace convtune::rpc::services

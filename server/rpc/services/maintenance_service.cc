#include <unistd.h>

#include <filesystem>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "proto/base/status_macros.h"
#include "server/rpc/messages/proto_converter.h"
#include "server/rpc/services/call.h"
#include "server/rpc/services/services.h"

namespace convtune::rpc::services {
namespace {

constexpr size_t kMaxMaintenanceCalls = 16;

int64_t CountThreads() {
  std::error_code error;
  return std::distance(std::filesystem::directory_iterator("/proc/self/task", error), {});
}

class MaintenanceService final : public RawService {
 public:
  explicit MaintenanceService(const ServiceOptions& options)
      : RawService(kMaintenanceServiceName),
        options_(options),
        start_time_(options_.clock->Now()),
        disk_(kMaxMaintenanceCalls) {
    Unary<v1::GetServerInfoRequest, v1::ServerInfo>(nullptr, [this](const auto&, auto* info) {
      *info = options_.tuner->Stats().info;
      info->set_version(CONVTUNE_VERSION);
      info->set_pid(getpid());
      *info->mutable_start_time() = messages::ToProto(start_time_);
      info->set_state_dir(options_.state_dir);
      info->set_schema_version(options_.store->SchemaVersion());
      info->set_database_bytes(options_.store->SizeBytes());
      info->set_threads(CountThreads());
      const std::optional<std::string>& url = options_.metrics_url;
      info->set_metrics_state(!url           ? v1::METRICS_STATE_NOT_BUILT
                              : url->empty() ? v1::METRICS_STATE_OFF
                                             : v1::METRICS_STATE_ON);
      info->set_metrics_url(url.value_or(""));
      *info->mutable_backups() = options_.backups->GetState();
      for (std::string& path : options_.store->ListPutAside()) {
        info->add_put_aside(std::move(path));
      }
      return absl::OkStatus();
    });

    Unary<v1::CheckDatabaseRequest, v1::CheckDatabaseResponse>(
        &disk_, [this](const auto&, auto* reply) {
          const SteadyTime start = SteadyTime::Now();
          ASSIGN_OR_RETURN(*reply, options_.store->Check());
          *reply->mutable_elapsed() = convtune::ToProto(SteadyTime::Now() - start);
          return absl::OkStatus();
        });

    Unary<v1::BackupDatabaseRequest, v1::BackupDatabaseResponse>(
        &disk_, [this](const auto& request) { return options_.backups->Write(request.path()); },
        NothingBefore());

    Unary<v1::CompactDatabaseRequest, v1::CompactDatabaseResponse>(
        &disk_, [this](const auto&) { return options_.store->Compact(); }, NothingBefore());
  }

 private:
  const ServiceOptions options_;
  const absl::Time start_time_;
  WorkQueue disk_;
};

}  // namespace

std::unique_ptr<grpc::Service> NewMaintenanceService(const ServiceOptions& options) {
  return std::make_unique<MaintenanceService>(options);
}

}  // namespace convtune::rpc::services

#include "server/rpc/server.h"

#include <fstream>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "grpc/health/v1/health.pb.h"
#include "grpcpp/ext/proto_server_reflection_plugin.h"
#include "grpcpp/health_check_service_interface.h"
#include "grpcpp/impl/service_type.h"
#include "grpcpp/resource_quota.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "proto/base/mutex.h"
#include "proto/base/status_macros.h"
#include "server/rpc/fleet_service.h"
#include "server/rpc/limits.h"
#include "server/rpc/listen_address.h"
#include "server/rpc/services.h"

namespace convtune {
namespace {

constexpr int kMillisecondsPerSecond = 1000;

absl::StatusOr<std::string> ReadFile(const char* flag, const std::string& path) {
  if (path.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--", flag,
                     ": is required to listen on HOST:PORT, with --tls-cert, "
                     "--tls-key and --tls-client-ca: TCP is served with mutual TLS only"));
  }
  std::ifstream file(path, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!file || text.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("--", flag, ": cannot read ", path));
  }
  return text;
}

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> TlsCredentials(const TlsFiles& files) {
  ASSIGN_OR_RETURN(const std::string cert, ReadFile("tls-cert", files.cert));
  ASSIGN_OR_RETURN(const std::string key, ReadFile("tls-key", files.key));
  ASSIGN_OR_RETURN(const std::string client_ca, ReadFile("tls-client-ca", files.client_ca));
  grpc::SslServerCredentialsOptions options(
      GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  options.pem_root_certs = client_ca;
  options.pem_key_cert_pairs.push_back({key, cert});
  return grpc::SslServerCredentials(options);
}

void SetLimits(grpc::ServerBuilder* builder) {
  builder->SetMaxReceiveMessageSize(kMaxRequestBytes);
  builder->SetMaxSendMessageSize(kMaxReplyBytes);
  builder->AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxConcurrentStreams);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS,
                              kKeepaliveSeconds * kMillisecondsPerSecond);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS,
                              kKeepaliveTimeoutSeconds * kMillisecondsPerSecond);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                              kMinClientPingSeconds * kMillisecondsPerSecond);
  builder->AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_MS,
                              kMaxConnectionAgeSeconds * kMillisecondsPerSecond);
  // Two daemons must never share a port unnoticed.
  builder->AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  grpc::ResourceQuota quota("convtuned");
  quota.Resize(kMaxBufferBytes);
  quota.SetMaxThreads(kMaxServerThreads);
  builder->SetResourceQuota(quota);
  builder->SetSyncServerOption(grpc::ServerBuilder::SyncServerOption::NUM_CQS, 1);
}

class GrpcServer final : public Server {
 public:
  explicit GrpcServer(const Options& options)
      : tuning_(NewTuningService(options.tuner, options.clock)),
        maintenance_(NewMaintenanceService(
            {options.tuner, options.store, options.clock, options.state_dir, options.metrics})),
        releases_(options.releases != nullptr ? NewReleaseService(options.releases) : nullptr),
        bundles_(NewBundleService(
            {options.tuner, options.clock, options.state_dir, options.bundle_keys})),
        fleet_(options.outbox != nullptr
                   ? NewFleetService({options.tuner, options.outbox, options.releases})
                   : nullptr) {}

  ~GrpcServer() override { Shutdown(absl::InfinitePast()); }

  absl::Status Start(const Options& options) {
    if (options.listen.empty()) {
      return absl::InvalidArgumentError("listen: at least one address is required");
    }
    grpc::EnableDefaultHealthCheckService(true);
    // gRPC's own health service has no description that reflection could find.
    google::protobuf::LinkMessageReflection<grpc::health::v1::HealthCheckRequest>();
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    grpc::ServerBuilder builder;
    SetLimits(&builder);
    std::vector<ListenAddress> parsed;
    std::vector<int> ports(options.listen.size(), 0);
    for (size_t i = 0; i < options.listen.size(); ++i) {
      ASSIGN_OR_RETURN(ListenAddress address, ListenAddress::Parse(options.listen[i]));
      if (address.unix_socket) {
        RETURN_IF_ERROR(PrepareSocketPath(address.target));
        builder.AddListeningPort(address.ToText(), grpc::InsecureServerCredentials());
      } else {
        ASSIGN_OR_RETURN(const auto credentials, TlsCredentials(options.tls));
        builder.AddListeningPort(address.ToText(), credentials, &ports[i]);
      }
      parsed.push_back(std::move(address));
    }
    builder.RegisterService(tuning_.get());
    builder.RegisterService(maintenance_.get());
    if (releases_ != nullptr) builder.RegisterService(releases_.get());
    builder.RegisterService(bundles_.get());
    if (fleet_ != nullptr) builder.RegisterService(fleet_.get());
    {
      const ScopedSocketUmask mask;
      server_ = builder.BuildAndStart();
    }
    if (server_ == nullptr) {
      std::string all;
      for (const std::string& address : options.listen) {
        absl::StrAppend(&all, all.empty() ? "" : ", ", address);
      }
      return absl::UnavailableError(
          absl::StrCat("cannot listen on ", all,
                       ": an address is in use or not allowed, or the TLS files are "
                       "not valid PEM"));
    }
    for (size_t i = 0; i < parsed.size(); ++i) {
      std::string text = parsed[i].ToText();
      if (!parsed[i].unix_socket) {
        text = absl::StrCat(text.substr(0, text.rfind(':')), ":", ports[i]);
      }
      addresses_.push_back(std::move(text));
    }
    SetReady(false);
    server_->GetHealthCheckService()->SetServingStatus("liveness", true);
    return absl::OkStatus();
  }

  void SetReady(bool ready) override {
    auto* health = server_->GetHealthCheckService();
    for (const char* name : {"", "readiness", kTuningServiceName, kMaintenanceServiceName,
                             kReleaseServiceName, kBundleServiceName, kFleetServiceName}) {
      health->SetServingStatus(name, ready);
    }
  }

  std::vector<std::string> addresses() const override { return addresses_; }

  void Shutdown(absl::Time deadline) override {
    MutexLock lock(shutdown_mutex_);
    if (server_ == nullptr || shut_down_) {
      return;
    }
    shut_down_ = true;
    server_->Shutdown(absl::ToChronoTime(deadline));
  }

 private:
  // Destroyed after the server that refers to them.
  const std::unique_ptr<grpc::Service> tuning_;
  const std::unique_ptr<grpc::Service> maintenance_;
  const std::unique_ptr<grpc::Service> releases_;  // may be nullptr
  const std::unique_ptr<grpc::Service> bundles_;
  const std::unique_ptr<grpc::Service> fleet_;  // may be nullptr
  std::unique_ptr<grpc::Server> server_;
  std::vector<std::string> addresses_;
  Mutex shutdown_mutex_;
  bool shut_down_ GUARDED_BY(shutdown_mutex_) = false;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Server>> Server::Create(const Options& options) {
  auto server = std::make_unique<GrpcServer>(options);
  RETURN_IF_ERROR(server->Start(options));
  return server;
}

}  // namespace convtune

#include "server/rpc/server.h"

#include <grpc/support/log.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "google/protobuf/stubs/logging.h"
#include "grpc/health/v1/health.pb.h"
#include "grpcpp/ext/proto_server_reflection_plugin.h"
#include "grpcpp/health_check_service_interface.h"
#include "grpcpp/impl/service_type.h"
#include "grpcpp/resource_quota.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"
#include "proto/base/status_macros.h"
#include "proto/monitoring/log.h"
#include "server/rpc/http2/access.h"
#include "server/rpc/http2/guarded_reads.h"
#include "server/rpc/http2/handshakes.h"
#include "server/rpc/http2/limits.h"
#include "server/rpc/http2/listen_address.h"
#include "server/rpc/http2/listener.h"
#include "server/rpc/http2/role_gate.h"
#include "server/rpc/http2/server_tls.h"
#include "server/rpc/services/call_stats.h"
#include "server/rpc/services/services.h"

namespace convtune::rpc {
namespace {

constexpr auto kFromFd = grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD;
constexpr int kMillisecondsPerSecond = 1000;
constexpr absl::Duration kCallPoll = absl::Milliseconds(5);
// From an answer to its bytes in the socket.
constexpr absl::Duration kAnswerFlush = absl::Milliseconds(30);

void SetLimits(grpc::ServerBuilder* builder) {
  builder->SetMaxReceiveMessageSize(http2::kMaxRequestBytes);
  builder->SetMaxSendMessageSize(http2::kMaxReplyBytes);
  builder->AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, http2::kMaxConcurrentStreams);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS,
                              http2::kKeepaliveSeconds * kMillisecondsPerSecond);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS,
                              http2::kKeepaliveTimeoutSeconds * kMillisecondsPerSecond);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                              http2::kMinClientPingSeconds * kMillisecondsPerSecond);
  // Two daemons must never share a port unnoticed.
  builder->AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  grpc::ResourceQuota quota("convtuned");
  quota.Resize(http2::kMaxBufferBytes);
  quota.SetMaxThreads(http2::kMaxServerThreads);
  builder->SetResourceQuota(quota);
  builder->SetSyncServerOption(grpc::ServerBuilder::SyncServerOption::NUM_CQS, 1);
}

void LogFromGrpc(gpr_log_func_args* args) {
  // A handshake's failure has its line, with the peer, already.
  const auto level = args->severity == GPR_LOG_SEVERITY_ERROR && !http2::TakeHandshakeFailed()
                         ? log::Level::kWarn
                         : log::Level::kDebug;
  log::Write(level, "grpc: $0", args->message);
}

void LogFromProtobuf(google::protobuf::LogLevel severity, const char* /*file*/, int /*line*/,
                     const std::string& message) {
  const auto level =
      severity >= google::protobuf::LOGLEVEL_WARNING ? log::Level::kWarn : log::Level::kDebug;
  log::Write(level, "protobuf: $0", message);
}

class GrpcServer final : public Server {
 public:
  ~GrpcServer() override { Shutdown(SteadyTime::InfinitePast()); }

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
    RETURN_IF_ERROR(Listen(options, &builder));
    // An age puts a filter before every call, so it is set only where certificates expire.
    if (tls_ != nullptr) {
      builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_MS,
                                 http2::kMaxConnectionAgeSeconds * kMillisecondsPerSecond);
    }
    services_.push_back(services::NewTuningService(options));
    services_.push_back(services::NewMaintenanceService(options));
    if (options.releases != nullptr) services_.push_back(services::NewReleaseService(options));
    services_.push_back(services::NewBundleService(options));
    if (options.outbox != nullptr) services_.push_back(services::NewFleetService(options));
    for (const auto& service : services_) builder.RegisterService(service.get());
    server_ = builder.BuildAndStart();
    if (server_ == nullptr) {
      return absl::UnavailableError(absl::StrCat("cannot listen on ",
                                                 absl::StrJoin(options.listen, ", "),
                                                 ": the server does not start; its log says why"));
    }
    SetReady(false);
    server_->GetHealthCheckService()->SetServingStatus("liveness", true);
    listener_.Start();
    return absl::OkStatus();
  }

  void SetReady(bool ready) override {
    auto* health = server_->GetHealthCheckService();
    for (const char* name : {"", "readiness", services::kTuningServiceName,
                             services::kMaintenanceServiceName, services::kReleaseServiceName,
                             services::kBundleServiceName, services::kFleetServiceName}) {
      health->SetServingStatus(name, ready);
    }
  }

  void SetServing(const std::string& name, bool serving) override {
    server_->GetHealthCheckService()->SetServingStatus(name, serving);
  }

  std::vector<std::string> addresses() const override { return addresses_; }

  absl::Status ReloadTls() override { return tls_ == nullptr ? absl::OkStatus() : tls_->Reload(); }

  void Shutdown(SteadyTime deadline) override {
    MutexLock lock(shutdown_mutex_);
    if (server_ == nullptr || shut_down_) {
      return;
    }
    shut_down_ = true;
    listener_.Stop();
    AwaitCalls(deadline);
    listener_.EndConnections();
    const int64_t left = absl::ToInt64Nanoseconds(deadline - SteadyTime::Now());
    server_->Shutdown(gpr_time_from_nanos(left, GPR_TIMESPAN));
  }

 private:
  using Acceptor = grpc::experimental::ExternalConnectionAcceptor;

  // Listens on all addresses, and tells the builder what connections there will be: those of an
  // address have the role of its credentials.
  absl::Status Listen(const Options& options, grpc::ServerBuilder* builder) {
    const auto accept = [builder](std::shared_ptr<grpc::ServerCredentials> credentials) {
      return std::shared_ptr<Acceptor>(
          builder->experimental().AddExternalConnectionAcceptor(kFromFd, std::move(credentials)));
    };
    ASSIGN_OR_RETURN(const http2::CertificateRoles roles,
                     http2::CertificateRoles::Parse(options.roles));
    // One for all addresses: handshakes of several would take turns at being told of
    // other TLS files.
    std::shared_ptr<Acceptor> by_certificate;
    for (const std::string& text : options.listen) {
      ASSIGN_OR_RETURN(const http2::ListenAddress address, http2::ListenAddress::Parse(text));
      http2::Listener::Take take;
      if (address.unix_socket) {
        take = [acceptor = accept(http2::SocketCredentials(address))](int fd) {
          http2::GuardReads(fd);
          Give(fd, acceptor.get());
        };
      } else {
        if (tls_ == nullptr) {
          ASSIGN_OR_RETURN(tls_, http2::ServerTls::Create(options.tls));
          by_certificate = accept(http2::TlsCredentials(tls_.get(), roles));
        }
        take = [by_certificate](int fd) { Give(fd, by_certificate.get()); };
      }
      ASSIGN_OR_RETURN(std::string listened, listener_.Add(address, take));
      addresses_.push_back(std::move(listened));
    }
    return absl::OkStatus();
  }

  static void Give(int fd, Acceptor* acceptor) {
    Acceptor::NewConnectionParameters connection;
    connection.fd = fd;
    acceptor->HandleNewConnection(&connection);
  }

  // Until no handler is at work, and what they answered is written.
  static void AwaitCalls(SteadyTime deadline) {
    const auto running = [] {
      int64_t calls = 0;
      for (const auto& [name, method] : services::CallStats::Global().Snapshot()) {
        calls += method.started;
        for (const auto& [status, durations] : method.ended) calls -= durations.count();
      }
      return calls > 0;
    };
    while (SteadyTime::Now() + kAnswerFlush < deadline && running()) absl::SleepFor(kCallPoll);
    if (SteadyTime::Now() < deadline) absl::SleepFor(kAnswerFlush);
  }

  // Destroyed after the server that refers to them.
  std::vector<std::unique_ptr<grpc::Service>> services_;
  std::unique_ptr<http2::ServerTls> tls_;  // null: nothing listens over TCP
  std::unique_ptr<grpc::Server> server_;
  std::vector<std::string> addresses_;
  http2::Listener listener_{
      http2::RaiseFileLimit(http2::kMaxConnections + http2::kReservedFiles, http2::kReservedFiles)};
  Mutex shutdown_mutex_;
  bool shut_down_ GUARDED_BY(shutdown_mutex_) = false;
};

}  // namespace

void CaptureLibraryLogs() {
  gpr_set_log_function(LogFromGrpc);
  google::protobuf::SetLogHandler(LogFromProtobuf);
}

absl::StatusOr<std::unique_ptr<Server>> Server::Create(const Options& options) {
  auto server = std::make_unique<GrpcServer>();
  RETURN_IF_ERROR(server->Start(options));
  return server;
}

}  // namespace convtune::rpc

#include "server/rpc/http2/connection_acceptor.h"

#include <grpc/grpc_security.h>
#include <sys/socket.h>

#include <utility>

#include "absl/time/time.h"
#include "grpcpp/security/server_credentials.h"
#include "proto/base/clock.h"
#include "proto/base/status_macros.h"
#include "proto/base/strings.h"
#include "server/rpc/http2/guarded_reads.h"
#include "server/rpc/http2/handshakes.h"
#include "server/rpc/http2/role_gate.h"

namespace convtune::rpc::http2 {
namespace {

constexpr auto kFromFd = grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD;
constexpr mode_t kOwnerAndGroup = 0660;
constexpr mode_t kEverybody = 0666;
// Reading to the end takes gRPC no longer than its threads are kept from it.
constexpr absl::Duration kEndTimeout = absl::Milliseconds(500);
constexpr absl::Duration kEndPause = absl::Milliseconds(2);

// Without a gate for admins: it would cost every call a little.
std::shared_ptr<grpc::ServerCredentials> SocketCredentials(const ListenAddress& address) {
  if (address.role == Role::kAdmin) return grpc::InsecureServerCredentials();
  const Caller caller{address.role, address.ToText()};
  return WithGate(grpc_local_server_credentials_create(UDS),
                  [caller](const grpc_auth_context*) { return caller; });
}

std::shared_ptr<grpc::ServerCredentials> TlsCredentials(ServerTls* tls,
                                                        const CertificateRoles& roles) {
  if (roles.empty()) return WithGate(tls->NewCredentials(), nullptr);
  return WithGate(tls->NewCredentials(), [roles](const grpc_auth_context* connection) {
    return CallerByCertificate(roles, connection);
  });
}

}  // namespace

ConnectionAcceptor::ConnectionAcceptor(Options options)
    : options_(std::move(options)), listener_(options_.max_fd) {}

absl::Status ConnectionAcceptor::Prepare(const std::vector<ListenAddress>& addresses,
                                         grpc::ServerBuilder* builder) {
  const auto accept = [this, builder](std::shared_ptr<grpc::ServerCredentials> credentials) {
    acceptors_.push_back(
        builder->experimental().AddExternalConnectionAcceptor(kFromFd, std::move(credentials)));
    return acceptors_.back().get();
  };
  // One for all addresses: handshakes of several would take turns at being told of
  // other TLS files.
  Acceptor* const by_certificate =
      options_.tls == nullptr ? nullptr : accept(TlsCredentials(options_.tls, options_.roles));
  for (const ListenAddress& address : addresses) {
    if (address.unix_socket) {
      RETURN_IF_ERROR(PrepareSocketPath(address.target));
      Acceptor* const acceptor = accept(SocketCredentials(address));
      RETURN_IF_ERROR(listener_.AddUnix(address.target,
                                        address.role == Role::kRead ? kEverybody : kOwnerAndGroup,
                                        {address.role == Role::kAdmin, [this, acceptor](int fd) {
                                           GuardReads(fd);
                                           Give(fd, acceptor);
                                         }}));
      addresses_.push_back(Concat(RoleName(address.role), "=", address.ToText()));
    } else {
      ASSIGN_OR_RETURN(std::string bound,
                       listener_.AddTcp(address.target, {false, [this, by_certificate](int fd) {
                                                           const PeerOfHandshake peer(fd);
                                                           Give(fd, by_certificate);
                                                         }}));
      addresses_.push_back(std::move(bound));
    }
  }
  return absl::OkStatus();
}

void ConnectionAcceptor::Give(int fd, Acceptor* acceptor) {
  if (static_cast<size_t>(fd) < cookies_.size()) cookies_[static_cast<size_t>(fd)] = CookieOf(fd);
  Acceptor::NewConnectionParameters connection;
  connection.fd = fd;
  acceptor->HandleNewConnection(&connection);
}

void ConnectionAcceptor::ForEachOpen(const std::function<void(int fd)>& use) const {
  for (size_t i = 0; i < cookies_.size(); ++i) {
    const int fd = static_cast<int>(i);
    // The number may be another's by now: then the cookie is, too.
    if (cookies_[i] != 0 && CookieOf(fd) == cookies_[i]) use(fd);
  }
}

void ConnectionAcceptor::EndConnections() const {
  const SteadyTime end = SteadyTime::Now() + kEndTimeout;
  ForEachOpen([](int fd) { shutdown(fd, SHUT_RD); });
  for (bool open = true; open && SteadyTime::Now() < end; absl::SleepFor(kEndPause)) {
    open = false;
    ForEachOpen([&open](int) { open = true; });
  }
}

}  // namespace convtune::rpc::http2

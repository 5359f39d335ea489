#include "server/rpc/http2/connection_acceptor.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <unistd.h>

#include <utility>

#include "grpcpp/security/server_credentials.h"
#include "proto/base/status_macros.h"
#include "server/rpc/http2/guarded_reads.h"
#include "server/rpc/http2/role_gate.h"

namespace convtune::rpc::http2 {
namespace {

constexpr auto kFromFd = grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD;
constexpr mode_t kOwnerAndGroup = 0660;
// Where rules say who may do what, they say so instead of the file's mode.
constexpr mode_t kEverybody = 0666;

}  // namespace

ConnectionAcceptor::ConnectionAcceptor(Options options)
    : options_(std::move(options)), listener_(options_.max_fd) {}

absl::Status ConnectionAcceptor::Prepare(const std::vector<ListenAddress>& addresses,
                                         grpc::ServerBuilder* builder) {
  const auto accept = [builder](std::shared_ptr<grpc::ServerCredentials> credentials) {
    return builder->experimental().AddExternalConnectionAcceptor(kFromFd, std::move(credentials));
  };
  if (options_.rules.for_sockets()) {
    for (const Role role : {Role::kRead, Role::kTune, Role::kAdmin}) {
      // Plain ones take no gate.
      auto credentials = grpc::experimental::LocalServerCredentials(UDS);
      credentials->SetAuthMetadataProcessor(NewRoleGate(role));
      by_role_[static_cast<size_t>(role)] = accept(std::move(credentials));
    }
  } else {
    by_role_[static_cast<size_t>(Role::kAdmin)] = accept(grpc::InsecureServerCredentials());
  }
  if (options_.tls != nullptr) {
    if (options_.rules.for_certificates()) {
      options_.tls->SetAuthMetadataProcessor(NewCertificateGate(options_.rules));
    }
    by_certificate_ = accept(options_.tls);
  }
  for (const ListenAddress& address : addresses) {
    if (address.unix_socket) {
      RETURN_IF_ERROR(PrepareSocketPath(address.target));
      RETURN_IF_ERROR(listener_.AddUnix(address.target,
                                        options_.rules.for_sockets() ? kEverybody : kOwnerAndGroup,
                                        SocketTarget()));
      addresses_.push_back(address.ToText());
    } else {
      ASSIGN_OR_RETURN(std::string bound, listener_.AddTcp(address.target, TlsTarget()));
      addresses_.push_back(std::move(bound));
    }
  }
  return absl::OkStatus();
}

Role ConnectionAcceptor::SocketRole(int fd) const {
  if (!options_.rules.for_sockets()) return Role::kAdmin;
  const absl::StatusOr<SocketPeer> peer = PeerOf(fd);
  if (!peer.ok()) {
    spdlog::warn("who connects is not known: {}", std::string(peer.status().message()));
    return Role::kNone;
  }
  const Role role = options_.rules.OfPeer(peer->uid, peer->groups);
  if (role == Role::kNone) {
    spdlog::info("a connection of user {} is closed: it has no role (--role)", peer->uid);
  }
  return role;
}

ConnectionAcceptor::Acceptor* ConnectionAcceptor::AcceptorOf(Role role) const {
  return by_role_[static_cast<size_t>(role)].get();
}

void ConnectionAcceptor::Give(int fd, Acceptor* acceptor) {
  if (acceptor == nullptr) {
    close(fd);
    return;
  }
  Acceptor::NewConnectionParameters connection;
  connection.fd = fd;
  acceptor->HandleNewConnection(&connection);
}

Listener::Target ConnectionAcceptor::SocketTarget() {
  return {[this](int fd) { return SocketRole(fd) == Role::kAdmin; },
          [this](int fd) {
            GuardReads(fd);
            Give(fd, AcceptorOf(SocketRole(fd)));
          }};
}

Listener::Target ConnectionAcceptor::TlsTarget() {
  return {[](int) { return false; },
          [this](int fd) {
            const int on = 1;
            setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
            Give(fd, by_certificate_.get());
          }};
}

}  // namespace convtune::rpc::http2

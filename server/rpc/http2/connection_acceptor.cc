#include "server/rpc/http2/connection_acceptor.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <utility>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "grpcpp/security/server_credentials.h"
#include "proto/base/status_macros.h"
#include "server/logging/log.h"
#include "server/rpc/http2/guarded_reads.h"
#include "server/rpc/http2/role_gate.h"

namespace convtune::rpc::http2 {
namespace {

constexpr auto kFromFd = grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD;
constexpr mode_t kOwnerAndGroup = 0660;
// Where rules say who may do what, they say so instead of the file's mode.
constexpr mode_t kEverybody = 0666;
// Reading to the end takes gRPC no longer than its threads are kept from it.
constexpr absl::Duration kEndPatience = absl::Milliseconds(500);
constexpr absl::Duration kEndPause = absl::Milliseconds(2);

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
    by_certificate_ = accept(TlsCredentials(options_.tls, options_.rules.for_certificates()
                                                              ? NewCertificateGate(options_.rules)
                                                              : nullptr));
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
    log::Warn("who connects is not known: $0", std::string(peer.status().message()));
    return Role::kNone;
  }
  const Role role = options_.rules.OfPeer(peer->uid, peer->groups);
  if (role == Role::kNone) {
    log::Info("a connection of user $0 is closed: it has no role (--role)", peer->uid);
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

void ConnectionAcceptor::EndConnections() const {
  const absl::Time end = absl::Now() + kEndPatience;
  EndReads(this);
  while (!ReadsEnded(this) && absl::Now() < end) absl::SleepFor(kEndPause);
}

Listener::Target ConnectionAcceptor::SocketTarget() {
  return {[this](int fd) { return SocketRole(fd) == Role::kAdmin; },
          [this](int fd) {
            GuardReads(fd, this);
            Give(fd, AcceptorOf(SocketRole(fd)));
          }};
}

Listener::Target ConnectionAcceptor::TlsTarget() {
  return {[](int) { return false; },
          [this](int fd) {
            const int on = 1;
            setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
            FollowReads(fd, this);
            Give(fd, by_certificate_.get());
          }};
}

}  // namespace convtune::rpc::http2

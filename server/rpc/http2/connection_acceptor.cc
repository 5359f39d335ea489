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
#include "proto/base/strings.h"
#include "proto/base/unique_fd.h"
#include "server/rpc/http2/guarded_reads.h"

namespace convtune::rpc::http2 {
namespace {

constexpr auto kFromFd = grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD;
constexpr mode_t kOwnerAndGroup = 0660;
// Where rules say who may do what, they say so instead of the file's mode.
constexpr mode_t kEverybody = 0666;
// Reading to the end takes gRPC no longer than its threads are kept from it.
constexpr absl::Duration kEndTimeout = absl::Milliseconds(500);
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
    const auto place = [&accept](Role role, const std::string& who) {
      const auto caller = std::make_shared<Caller>(Caller{role, who});
      // Plain ones take no gate.
      auto credentials = grpc::experimental::LocalServerCredentials(UDS);
      credentials->SetAuthMetadataProcessor(NewRoleGate(caller));
      return Place{accept(std::move(credentials)), caller};
    };
    for (size_t i = 0; i < kMostUsers; ++i) of_users_.push_back(place(Role::kNone, ""));
    for (const Role role : {Role::kRead, Role::kTune, Role::kAdmin}) {
      of_roles_[static_cast<size_t>(role)] = place(role, "one of many users");
    }
    refuser_ = std::make_unique<Refuser>();
  } else {
    of_admins_ = accept(grpc::InsecureServerCredentials());
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

Role ConnectionAcceptor::RoleOf(const SocketPeer& peer) const {
  return options_.rules.OfPeer(peer.uid, peer.groups);
}

void ConnectionAcceptor::TakeSocket(int fd) {
  if (!options_.rules.for_sockets()) {
    GuardReads(fd, this);
    Give(fd, of_admins_.get());
    return;
  }
  const absl::StatusOr<SocketPeer> peer = PeerOf(fd);
  if (!peer.ok()) {
    LogRefusal(Concat("a connection is closed, as it is not known who connects: ",
                      peer.status().message()));
    close(fd);
    return;
  }
  const Role role = RoleOf(*peer);
  if (role == Role::kNone) {
    LogRefusal(Concat("user ", peer->uid, " refused: it has no role (--role)"));
    refuser_->Take(UniqueFd(fd), Concat("user ", peer->uid,
                                        " has no role here; roles are given by convtuned --role"));
    return;
  }
  GuardReads(fd, this);
  Give(fd, AcceptorOf(peer->uid, role));
}

ConnectionAcceptor::Acceptor* ConnectionAcceptor::AcceptorOf(uid_t uid, Role role) {
  const auto found = user_places_.find({uid, role});
  if (found != user_places_.end()) return of_users_[found->second].acceptor.get();
  const size_t next = user_places_.size();
  if (next == of_users_.size()) return of_roles_[static_cast<size_t>(role)].acceptor.get();
  *of_users_[next].caller = {role, Concat("user ", uid)};
  user_places_[{uid, role}] = next;
  return of_users_[next].acceptor.get();
}

void ConnectionAcceptor::Give(int fd, Acceptor* acceptor) {
  Acceptor::NewConnectionParameters connection;
  connection.fd = fd;
  acceptor->HandleNewConnection(&connection);
}

void ConnectionAcceptor::EndConnections() const {
  const absl::Time end = absl::Now() + kEndTimeout;
  EndReads(this);
  while (!ReadsEnded(this) && absl::Now() < end) absl::SleepFor(kEndPause);
}

Listener::Target ConnectionAcceptor::SocketTarget() {
  return {[this](int fd) {
            if (!options_.rules.for_sockets()) return true;
            const absl::StatusOr<SocketPeer> peer = PeerOf(fd);
            return peer.ok() && RoleOf(*peer) == Role::kAdmin;
          },
          [this](int fd) { TakeSocket(fd); }};
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

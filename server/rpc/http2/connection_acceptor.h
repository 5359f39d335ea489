// A ConnectionAcceptor gives connections to the gRPC server, each with its
// caller's role.
#pragma once

#include <sys/types.h>

#include <array>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "grpcpp/server_builder.h"
#include "server/rpc/http2/access.h"
#include "server/rpc/http2/listen_address.h"
#include "server/rpc/http2/listener.h"
#include "server/rpc/http2/refuser.h"
#include "server/rpc/http2/role_gate.h"
#include "server/rpc/http2/tls_credentials.h"

namespace convtune::rpc::http2 {

// Not thread-safe. In this order: Prepare, the server is built and started,
// Open; and Close, perhaps EndConnections, before it is shut down.
class ConnectionAcceptor {
 public:
  struct Options {
    AccessRules rules;
    std::shared_ptr<ServerTls> tls;  // null where no address is TCP
    int max_fd = 0;                  // see Listener
  };
  explicit ConnectionAcceptor(Options options);

  // Listens on all addresses, and tells the builder what connections there will
  // be. ALREADY_EXISTS: somebody listens on the socket; UNAVAILABLE: an address
  // cannot be listened on.
  absl::Status Prepare(const std::vector<ListenAddress>& addresses, grpc::ServerBuilder* builder);
  // The addresses that are listened on; a port of 0 is replaced by the actual one.
  const std::vector<std::string>& addresses() const { return addresses_; }

  void Open() { listener_.Start(); }
  void Close() { listener_.Stop(); }
  // Ends the connections that there are, see http2::EndReads, and waits a
  // moment for gRPC to see it. After Close.
  void EndConnections() const;

 private:
  using Acceptor = grpc::experimental::ExternalConnectionAcceptor;

  // Connections of one caller. gRPC tells a gate nothing of a unix socket's peer, so
  // each user has an acceptor with a gate of its own.
  struct Place {
    std::unique_ptr<Acceptor> acceptor;
    std::shared_ptr<Caller> caller;
  };
  static constexpr size_t kMostUsers = 32;

  Role RoleOf(const SocketPeer& peer) const;
  void TakeSocket(int fd);
  // The user's, or of its role alone where there are too many users.
  Acceptor* AcceptorOf(uid_t uid, Role role);
  static void Give(int fd, Acceptor* acceptor);
  Listener::Target SocketTarget();
  Listener::Target TlsTarget();

  const Options options_;
  // Of unix sockets without rules.
  std::unique_ptr<Acceptor> of_admins_;
  // Of unix sockets with rules. Nobody without a role comes as far as gRPC.
  std::vector<Place> of_users_;
  std::map<std::pair<uid_t, Role>, size_t> user_places_;  // for the listener's thread
  std::array<Place, 4> of_roles_;
  std::unique_ptr<Refuser> refuser_;
  std::unique_ptr<Acceptor> by_certificate_;
  std::vector<std::string> addresses_;
  Listener listener_;  // the last: it uses the others
};

}  // namespace convtune::rpc::http2

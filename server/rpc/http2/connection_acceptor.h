// A ConnectionAcceptor gives connections to the gRPC server, each with the role of
// the address that it came to.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "grpcpp/server_builder.h"
#include "server/rpc/http2/access.h"
#include "server/rpc/http2/limits.h"
#include "server/rpc/http2/listen_address.h"
#include "server/rpc/http2/listener.h"
#include "server/rpc/http2/server_tls.h"

namespace convtune::rpc::http2 {

// Not thread-safe. In this order: Prepare, the server is built and started,
// Open; and Close, perhaps EndConnections, before it is shut down.
class ConnectionAcceptor {
 public:
  struct Options {
    CertificateRoles roles;
    ServerTls* tls = nullptr;  // outlives the server; null where no address is TCP
    int max_fd = 0;            // see Listener
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
  // Ends the connections that there are, for gRPC as if the clients had gone, and
  // waits a moment for gRPC to close them: clients get UNAVAILABLE for calls without an
  // answer. grpc::Server::Shutdown alone gives CANCELLED without a message to calls
  // that arrive while it runs. After Close.
  void EndConnections() const;

 private:
  using Acceptor = grpc::experimental::ExternalConnectionAcceptor;

  void Give(int fd, Acceptor* acceptor);
  void ForEachOpen(const std::function<void(int fd)>& use) const;

  const Options options_;
  std::vector<std::unique_ptr<Acceptor>> acceptors_;
  std::array<uint64_t, kMaxConnections + kReservedFiles> cookies_{};  // of connections, by fd
  std::vector<std::string> addresses_;
  Listener listener_;  // the last: it uses the others
};

}  // namespace convtune::rpc::http2

// The Server is gRPC's server of the daemon: services, health, reflection,
// sockets.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/base/clock.h"
#include "server/rpc/http2/server_tls.h"
#include "server/rpc/services/services.h"

namespace convtune::rpc {

// Sends gRPC's and protobuf's own messages, which they else write to standard error in forms of
// their own, to our log. Nothing that they report stops the daemon, so their errors are warnings
// here. Call it before their first use.
void CaptureLibraryLogs();

// Listens on unix sockets, which get mode 0660 (0666 where whoever connects has the
// role read), and over TCP with mutual TLS only. Health is kept under the names "liveness"
// (the process works) and "readiness" (it takes calls); "" and the services' names say what
// readiness says; other names are as SetServing has them. A call that waits takes no thread.
// Thread-safe.
class Server {
 public:
  struct Options : services::ServiceOptions {
    std::vector<std::string> listen;      // as ListenAddress::Parse takes them; at least one
    http2::ServerTlsFiles tls;            // all or none; needed for HOST:PORT
    std::vector<std::string> roles = {};  // as CertificateRoles::Parse takes them
  };

  // Listens and serves, alive but not ready. INVALID_ARGUMENT: an address, or
  // TLS files that are missing or unreadable; ALREADY_EXISTS: somebody listens
  // on the socket already; UNAVAILABLE: the address cannot be listened on.
  static absl::StatusOr<std::unique_ptr<Server>> Create(const Options& options);
  // Shuts down without waiting, if nobody has.
  virtual ~Server() = default;

  virtual void SetReady(bool ready) = 0;
  // Sets the status of a service of the health protocol, such as "devices". The services whose
  // status SetReady sets are not set here.
  virtual void SetServing(const std::string& name, bool serving) = 0;
  // Reads the TLS files now; without this call, they are looked at when clients
  // connect. INVALID_ARGUMENT as Create: then those from before stay.
  virtual absl::Status ReloadTls() = 0;
  // The addresses that are listened on; a port of 0 is replaced by the actual one.
  virtual std::vector<std::string> addresses() const = 0;
  // Accepts no more connections and removes the sockets, lets the calls that run
  // end until the deadline, then ends all connections: a client gets UNAVAILABLE
  // for a call that has no answer by then. Blocks; idempotent.
  virtual void Shutdown(SteadyTime deadline) = 0;
};

}  // namespace convtune::rpc

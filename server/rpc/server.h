// The Server is gRPC's server of the daemon: services, health, reflection,
// sockets.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "db/outbox_store.h"
#include "db/tuning_store.h"
#include "proto/base/clock.h"
#include "server/rpc/http2/tls_files.h"
#include "server/rpc/services/services.h"
#include "server/tuner/tuner.h"

namespace convtune::rpc {

// Listens on unix sockets, which get mode 0660 (0666 where whoever connects has the
// role read), and over TCP with mutual TLS only. Health is kept under the names "liveness"
// (the process works) and "readiness" (it takes calls); "" and the services' names say what
// readiness says; other names are as SetServing has them. A call that waits takes no thread.
// Thread-safe.
class Server {
 public:
  struct Options {
    std::vector<std::string> listen;      // as ListenAddress::Parse takes them; at least one
    http2::ServerTlsFiles tls;            // all or none; needed for HOST:PORT
    std::vector<std::string> roles = {};  // as CertificateRoles::Parse takes them
    tuner::Tuner* tuner = nullptr;        // these four outlive the server
    db::TuningStore* store = nullptr;
    release::ReleaseManager* releases = nullptr;  // without it there is no ReleaseService
    const Clock* clock = nullptr;
    std::string state_dir;  // as GetServerInfo reports it; imports wait there
    // Public keys (32 bytes each), one of which must have signed an imported
    // bundle; empty: it need not be signed.
    std::vector<std::string> bundle_keys = {};
    services::MetricsInfo metrics = {};
    db::store::Backups* backups = nullptr;   // outlives the server
    std::vector<std::string> left_out = {};  // devices that cannot be used, with the reason
    db::OutboxStore* outbox = nullptr;  // without it there is no FleetService; outlives the server
  };

  // Listens and serves, alive but not ready. INVALID_ARGUMENT: an address, or
  // TLS files that are missing or unreadable; ALREADY_EXISTS: somebody listens
  // on the socket already; UNAVAILABLE: the address cannot be listened on.
  static absl::StatusOr<std::unique_ptr<Server>> Create(const Options& options);
  // Shuts down without waiting, if nobody has.
  virtual ~Server() = default;

  virtual void SetReady(bool ready) = 0;
  // Of a health name of the caller's.
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

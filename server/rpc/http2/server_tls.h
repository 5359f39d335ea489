// A ServerTls gives a server's handshakes the TLS files as they are now.
#pragma once

#include <grpc/grpc_security.h>

#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"
#include "server/rpc/http2/tls_files.h"

namespace convtune::rpc::http2 {

// A handshake looks whether the files have changed, once a second at most. Files
// that are not sound (a certificate without its key, as in the middle of an
// exchange) change nothing, and a line of the log says why: gRPC's own provider of
// certificates (1.51) refuses all clients meanwhile. Connections keep what they
// began with. Thread-safe.
class ServerTls {
 public:
  // INVALID_ARGUMENT as ReadTlsFiles.
  static absl::StatusOr<std::unique_ptr<ServerTls>> Create(const ServerTlsFiles& files);
  explicit ServerTls(ServerTlsFiles files) : files_(std::move(files)) {}

  // Reads the files now, changed or not. INVALID_ARGUMENT as ReadTlsFiles: then
  // those that were read before stay.
  absl::Status Reload();

  // Mutual TLS with these files, for one server, which this outlives. The caller
  // owns them.
  grpc_server_credentials* NewCredentials();

 private:
  absl::Status ReloadLocked() REQUIRES(mutex_);
  // For a handshake: the newest texts, if the one before did not have them.
  static grpc_ssl_certificate_config_reload_status Fetch(
      void* self, grpc_ssl_server_certificate_config** config);

  const ServerTlsFiles files_;
  Mutex mutex_;
  TlsTexts texts_ GUARDED_BY(mutex_);
  bool fetched_ GUARDED_BY(mutex_) = false;
  std::string stamp_ GUARDED_BY(mutex_);          // of the files that are used
  std::string refused_stamp_ GUARDED_BY(mutex_);  // of those that were refused last
  SteadyTime next_look_ GUARDED_BY(mutex_) = SteadyTime::InfinitePast();
};

}  // namespace convtune::rpc::http2

// A ServerTls gives a server's handshakes the TLS files as they are now.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "grpcpp/security/auth_metadata_processor.h"
#include "grpcpp/security/server_credentials.h"
#include "proto/base/mutex.h"
#include "server/rpc/http2/tls_files.h"

namespace convtune::rpc::http2 {

// A handshake looks whether the files have changed, once a second at most. Files
// that are not sound (a certificate without its key, as in the middle of an
// exchange) change nothing, and a line of the log says why. Connections keep
// what they began with. Thread-safe.
class ServerTls {
 public:
  // INVALID_ARGUMENT as ReadTlsFiles.
  static absl::StatusOr<std::shared_ptr<ServerTls>> Create(const ServerTlsFiles& files);
  explicit ServerTls(ServerTlsFiles files) : files_(std::move(files)) {}

  // Reads the files now, changed or not. INVALID_ARGUMENT as ReadTlsFiles: then
  // those that were read before stay.
  absl::Status Reload();

  // For a handshake: true with the newest texts if they are newer than `*version`,
  // which is set then.
  bool Newer(uint64_t* version, TlsTexts* texts);

 private:
  absl::Status ReloadLocked() REQUIRES(mutex_);

  const ServerTlsFiles files_;
  Mutex mutex_;
  TlsTexts texts_ GUARDED_BY(mutex_);
  uint64_t version_ GUARDED_BY(mutex_) = 0;
  std::string stamp_ GUARDED_BY(mutex_);  // of the files that were read last, sound or not
  absl::Time next_look_ GUARDED_BY(mutex_) = absl::InfinitePast();
};

// Mutual TLS with the files of `tls`; for one server. `gate` stands before every
// call; nullptr: there is none.
std::shared_ptr<grpc::ServerCredentials> TlsCredentials(
    std::shared_ptr<ServerTls> tls, std::shared_ptr<grpc::AuthMetadataProcessor> gate);

}  // namespace convtune::rpc::http2

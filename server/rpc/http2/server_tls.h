// A ServerTls gives a server's handshakes the TLS files as they are now.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"
#include "proto/base/replace_file.h"

struct grpc_server_credentials;
struct grpc_ssl_server_certificate_config;

namespace convtune::rpc::http2 {

// PEM files of a server that asks its clients for certificates.
struct ServerTlsFiles {
  std::string cert;
  std::string key;
  std::string client_ca;
};

// The contents of the TLS files.
struct TlsTexts {
  std::string cert;
  absl::Time cert_end;
  std::string key;
  std::string client_ca;
};

// Reads the files and tries what is in them: gRPC would find a fault only when
// the first client comes, and say it in its log alone. INVALID_ARGUMENT, with
// the flag's name, for a file that cannot be read or is not what it must be,
// for a certificate that has ended or not begun, and for a key that is not the
// certificate's.
absl::StatusOr<TlsTexts> ReadTlsFiles(const ServerTlsFiles& files);

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

  // Credentials of mutual TLS with these files, which the caller owns, for one server. This
  // outlives the server.
  grpc_server_credentials* NewCredentials();

 private:
  // The marks of the three files; they differ once a file is written, replaced or linked to
  // elsewhere.
  using FileMarks = std::array<std::optional<FileMark>, 3>;
  FileMarks Marks() const {
    return {MarkOf(files_.cert), MarkOf(files_.key), MarkOf(files_.client_ca)};
  }

  absl::Status ReloadLocked() REQUIRES(mutex_);
  // Gives a handshake the newest texts. Returns false if the last handshake has had them.
  bool Fetch(grpc_ssl_server_certificate_config** config);

  const ServerTlsFiles files_;
  Mutex mutex_;
  TlsTexts texts_ GUARDED_BY(mutex_);
  bool fetched_ GUARDED_BY(mutex_) = false;
  FileMarks marks_ GUARDED_BY(mutex_);  // of the files that are used
  // The marks of the files that were refused last. The mark of a file that is gone is nullopt.
  std::optional<FileMarks> refused_marks_ GUARDED_BY(mutex_);
  SteadyTime next_look_ GUARDED_BY(mutex_) = SteadyTime::InfinitePast();
};

}  // namespace convtune::rpc::http2

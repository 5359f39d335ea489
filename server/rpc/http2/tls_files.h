// ServerTlsFiles name a server's certificate, its key, and who signs its clients'
// certificates.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

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

}  // namespace convtune::rpc::http2

#include "server/rpc/http2/server_tls.h"

#include <grpc/grpc_security.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <fstream>
#include <iterator>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/certificate_dates.h"
#include "proto/base/clock.h"
#include "proto/base/status_macros.h"
#include "proto/monitoring/log.h"
#include "server/rpc/http2/handshakes.h"

namespace convtune::rpc::http2 {
namespace {

using Bio = std::unique_ptr<BIO, decltype(&BIO_free)>;
using Certificate = std::unique_ptr<X509, decltype(&X509_free)>;
using Key = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;

Bio BioOf(const std::string& text) {
  return {BIO_new_mem_buf(text.data(), static_cast<int>(text.size())), &BIO_free};
}

// A key that is encrypted is refused rather than asked for on the terminal.
int NoPassphrase(char*, int, int, void*) { return -1; }

absl::StatusOr<std::string> ReadFile(const char* flag, const std::string& path) {
  if (path.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--", flag,
                     ": is required to listen on HOST:PORT, with --tls-cert, "
                     "--tls-key and --tls-client-ca: TCP is served with mutual TLS only"));
  }
  std::ifstream file(path, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!file || text.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("--", flag, ": cannot read ", path));
  }
  return text;
}

// Reads the first object with PEM_read_bio_X509 or PEM_read_bio_PrivateKey.
template <typename Read>
auto ReadPem(const std::string& text, Read read) {
  const Bio bio = BioOf(text);
  auto* object = read(bio.get(), nullptr, NoPassphrase, nullptr);
  ERR_clear_error();  // gRPC would find it in the thread's queue
  return object;
}

absl::Status MustBe(const char* flag, const std::string& path, const char* what) {
  return absl::InvalidArgumentError(absl::StrCat("--", flag, ": ", path, " must be ", what));
}

// Of several authorities, one that holds now is enough.
absl::Status CheckAuthorities(const std::string& path, const std::string& text) {
  const Bio bio = BioOf(text);
  std::optional<std::string> fault;  // of the last one that was read
  while (!fault || !fault->empty()) {
    const Certificate authority(PEM_read_bio_X509(bio.get(), nullptr, NoPassphrase, nullptr),
                                &X509_free);
    if (authority == nullptr) break;
    fault = CertificateDateFault(authority.get());
  }
  ERR_clear_error();  // the file's end is one
  if (!fault) return MustBe("tls-client-ca", path, "a PEM file with certificates");
  if (fault->empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--tls-client-ca: no certificate in ", path, " holds now: the last ", *fault));
}

constexpr absl::Duration kBetweenLooks = absl::Seconds(1);

}  // namespace

absl::StatusOr<TlsTexts> ReadTlsFiles(const ServerTlsFiles& files) {
  TlsTexts texts;
  ASSIGN_OR_RETURN(texts.cert, ReadFile("tls-cert", files.cert));
  ASSIGN_OR_RETURN(texts.key, ReadFile("tls-key", files.key));
  ASSIGN_OR_RETURN(texts.client_ca, ReadFile("tls-client-ca", files.client_ca));
  const Certificate cert(ReadPem(texts.cert, PEM_read_bio_X509), &X509_free);
  if (cert == nullptr) return MustBe("tls-cert", files.cert, "a PEM file with a certificate");
  if (const std::string fault = CertificateDateFault(cert.get()); !fault.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--tls-cert: the certificate in ", files.cert, " ", fault));
  }
  texts.cert_end = CertificateTime(X509_get0_notAfter(cert.get()));
  const Key key(ReadPem(texts.key, PEM_read_bio_PrivateKey), &EVP_PKEY_free);
  if (key == nullptr) {
    return MustBe("tls-key", files.key, "a PEM file with a private key without a passphrase");
  }
  const bool fits = X509_check_private_key(cert.get(), key.get()) == 1;
  ERR_clear_error();
  if (!fits) {
    return MustBe("tls-key", files.key, absl::StrCat("the key of ", files.cert).c_str());
  }
  RETURN_IF_ERROR(CheckAuthorities(files.client_ca, texts.client_ca));
  return texts;
}

absl::StatusOr<std::unique_ptr<ServerTls>> ServerTls::Create(const ServerTlsFiles& files) {
  auto tls = std::make_unique<ServerTls>(files);
  RETURN_IF_ERROR(tls->Reload());
  return tls;
}

absl::Status ServerTls::Reload() {
  MutexLock lock(mutex_);
  return ReloadLocked();
}

absl::Status ServerTls::ReloadLocked() {
  // Before reading: what is written meanwhile has other marks.
  const FileMarks marks = Marks();
  ASSIGN_OR_RETURN(texts_, ReadTlsFiles(files_));
  marks_ = marks;
  TlsStats::Global().certificate_end = absl::ToUnixSeconds(texts_.cert_end);
  fetched_ = false;
  return absl::OkStatus();
}

grpc_server_credentials* ServerTls::NewCredentials() {
  const auto fetch = [](void* self, grpc_ssl_server_certificate_config** config) {
    return static_cast<ServerTls*>(self)->Fetch(config)
               ? GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW
               : GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
  };
  return grpc_ssl_server_credentials_create_with_options(
      grpc_ssl_server_credentials_create_options_using_config_fetcher(
          GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY, fetch, this));
}

bool ServerTls::Fetch(grpc_ssl_server_certificate_config** config) {
  MutexLock lock(mutex_);
  if (const SteadyTime now = SteadyTime::Now(); now >= next_look_) {
    next_look_ = now + kBetweenLooks;
    // Files that are refused are read again at each look: a certificate may begin a moment later.
    if (const FileMarks marks = Marks(); marks != marks_) {
      const absl::Status read = ReloadLocked();
      if (read.ok()) {
        log::Info("the TLS files have changed: new connections get them");
      } else if (marks != std::exchange(refused_marks_, marks)) {
        log::Warn("the TLS files have changed, and the ones before stay: $0",
                  std::string(read.message()));
      }
    }
  }
  if (fetched_) return false;
  fetched_ = true;
  const grpc_ssl_pem_key_cert_pair pair{texts_.key.c_str(), texts_.cert.c_str()};
  *config = grpc_ssl_server_certificate_config_create(texts_.client_ca.c_str(), &pair, 1);
  return true;
}

}  // namespace convtune::rpc::http2

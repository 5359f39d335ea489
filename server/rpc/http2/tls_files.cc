#include "server/rpc/http2/tls_files.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <fstream>
#include <iterator>
#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"
#include "proto/base/certificate_dates.h"
#include "proto/base/status_macros.h"

namespace convtune::rpc::http2 {
namespace {

struct FreeBio {
  void operator()(BIO* bio) const { BIO_free(bio); }
};
struct FreeCertificate {
  void operator()(X509* certificate) const { X509_free(certificate); }
};
struct FreeKey {
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
};

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
  const std::unique_ptr<BIO, FreeBio> bio(
      BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
  auto* object = read(bio.get(), nullptr, NoPassphrase, nullptr);
  ERR_clear_error();  // gRPC would find it in the thread's queue
  return object;
}

absl::Status MustBe(const char* flag, const std::string& path, const char* what) {
  return absl::InvalidArgumentError(absl::StrCat("--", flag, ": ", path, " must be ", what));
}

// Of several authorities, one that holds now is enough.
absl::Status CheckAuthorities(const std::string& path, const std::string& text) {
  const std::unique_ptr<BIO, FreeBio> bio(
      BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
  std::optional<std::string> fault;  // of the last one that was read
  while (!fault || !fault->empty()) {
    const std::unique_ptr<X509, FreeCertificate> authority(
        PEM_read_bio_X509(bio.get(), nullptr, NoPassphrase, nullptr));
    if (authority == nullptr) break;
    fault = CertificateDateFault(authority.get());
  }
  ERR_clear_error();  // the file's end is one
  if (!fault) return MustBe("tls-client-ca", path, "a PEM file with certificates");
  if (fault->empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--tls-client-ca: no certificate in ", path, " holds now: the last ", *fault));
}

}  // namespace

absl::StatusOr<TlsTexts> ReadTlsFiles(const ServerTlsFiles& files) {
  TlsTexts texts;
  ASSIGN_OR_RETURN(texts.cert, ReadFile("tls-cert", files.cert));
  ASSIGN_OR_RETURN(texts.key, ReadFile("tls-key", files.key));
  ASSIGN_OR_RETURN(texts.client_ca, ReadFile("tls-client-ca", files.client_ca));
  const std::unique_ptr<X509, FreeCertificate> cert(ReadPem(texts.cert, PEM_read_bio_X509));
  if (cert == nullptr) return MustBe("tls-cert", files.cert, "a PEM file with a certificate");
  if (const std::string fault = CertificateDateFault(cert.get()); !fault.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--tls-cert: the certificate in ", files.cert, " ", fault));
  }
  texts.cert_end = CertificateTime(X509_get0_notAfter(cert.get()));
  const std::unique_ptr<EVP_PKEY, FreeKey> key(ReadPem(texts.key, PEM_read_bio_PrivateKey));
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

}  // namespace convtune::rpc::http2

#include "client/cli/app/address_check.h"

#include <openssl/bio.h>
#include <openssl/ssl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <memory>

#include "absl/strings/str_cat.h"
#include "client/cli/output/units.h"
#include "proto/base/certificate_dates.h"
#include "proto/base/clock.h"

namespace convtune::cli::app {
namespace {

constexpr char kAskForAccess[] =
    "join the group of the socket or of its folder, or use a socket for everybody with "
    "CONVTUNE_ADDRESS";
constexpr absl::Duration kConnectTimeout = absl::Seconds(2);
constexpr int kPollMilliseconds = 10;
constexpr absl::Duration kEndsSoon = absl::Hours(14 * 24);  // as in the chart's alerts.yml

Finding ExamineDates(const std::string& whose, const X509* certificate) {
  if (const std::string fault = CertificateDateFault(certificate); !fault.empty()) {
    return Problem(absl::StrCat(whose, " ", fault), "put one in its place that holds now");
  }
  const absl::Time end = CertificateTime(X509_get0_notAfter(certificate));
  const std::string ends = absl::StrCat(whose, " ends on ", output::FormatTimestamp(end));
  return end - SystemClock().Now() > kEndsSoon ? Fine(ends) : Notice(ends, "renew it before");
}

// gRPC does not tell its caller why a handshake failed, so this one looks at the certificate
// that the daemon shows, whoever signed it. Without a handshake there is no finding of it.
std::vector<Finding> ExamineCertificates(const client::Address& address,
                                         const client::TlsFiles& tls) {
  std::vector<Finding> findings;
  const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context(SSL_CTX_new(TLS_client_method()),
                                                                  &SSL_CTX_free);
  // Without the caller's certificate and ALPN the daemon would log that they are missing.
  if (SSL_CTX_use_certificate_chain_file(context.get(), tls.cert.c_str()) == 1) {
    findings.push_back(ExamineDates(absl::StrCat("the client's certificate in ", tls.cert),
                                    SSL_CTX_get0_certificate(context.get())));
    SSL_CTX_use_PrivateKey_file(context.get(), tls.key.c_str(), SSL_FILETYPE_PEM);
  }
  SSL_CTX_set_alpn_protos(context.get(),
                          reinterpret_cast<const unsigned char*>("\x02h2"),  // NOLINT
                          3);
  SSL_CTX_set_quiet_shutdown(context.get(), 1);  // to a daemon that hung up it would be a SIGPIPE
  const std::unique_ptr<BIO, decltype(&BIO_free_all)> connection(BIO_new_ssl_connect(context.get()),
                                                                 &BIO_free_all);
  BIO_set_conn_hostname(connection.get(), address.target.c_str());
  BIO_set_nbio(connection.get(), 1);
  // BIO_do_connect_retry would try a refused connection again until the time is up.
  const SteadyTime end = SteadyTime::Now() + kConnectTimeout;
  while (BIO_do_handshake(connection.get()) != 1 && BIO_should_retry(connection.get()) &&
         SteadyTime::Now() < end) {
    BIO_wait(connection.get(), time(nullptr) + 1, kPollMilliseconds);
  }
  SSL* ssl = nullptr;
  BIO_get_ssl(connection.get(), &ssl);
  if (const X509* shown = SSL_get0_peer_certificate(ssl); shown != nullptr) {
    findings.push_back(ExamineDates(absl::StrCat("the certificate of ", address.target), shown));
  }
  return findings;
}

}  // namespace

std::vector<Finding> ExamineAddress(const client::Address& address, const client::TlsFiles& tls) {
  if (!address.unix_socket) return ExamineCertificates(address, tls);
  struct stat status {};
  if (stat(address.target.c_str(), &status) != 0) {
    const int error = errno;
    const bool denied = error == EACCES;
    return {Problem(absl::StrCat("socket ", address.target, ": ", std::strerror(error)),
                    denied
                        ? kAskForAccess
                        : "start the daemon with `convtuned`, or say where it is with --address")};
  }
  if (!S_ISSOCK(status.st_mode)) {
    return {Problem(absl::StrCat(address.target, " is not a socket"),
                    "give the daemon's socket with --address")};
  }
  if (access(address.target.c_str(), R_OK | W_OK) != 0) {
    return {Problem(absl::StrCat("socket ", address.target, ": ", std::strerror(errno)),
                    kAskForAccess)};
  }
  return {Fine(absl::StrCat("socket ", address.target, " is there"))};
}

}  // namespace convtune::cli::app

#include "client/cli/app/address_check.h"

#include <openssl/bio.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/output/units.h"
#include "proto/base/certificate_dates.h"
#include "proto/base/clock.h"
#include "proto/base/default_paths.h"
#include "proto/base/unique_fd.h"

namespace convtune::cli::app {
namespace {

constexpr char kAskForAccess[] =
    "join the group of the socket or of its folder, or use a socket for everybody with "
    "CONVTUNE_ADDRESS";
constexpr absl::Duration kAnswerTimeout = absl::Seconds(2);
constexpr int kPollMilliseconds = 10;
constexpr absl::Duration kEndsSoon = absl::Hours(14 * 24);  // as in the chart's alerts.yml

Findings ExamineDates(const std::string& whose, const X509* certificate) {
  if (const std::string fault = CertificateDateFault(certificate); !fault.empty()) {
    return Findings().Problem(absl::StrCat(whose, " ", fault),
                              "put one in its place that holds now");
  }
  const absl::Time end = CertificateTime(X509_get0_notAfter(certificate));
  const std::string ends = absl::StrCat(whose, " ends on ", output::FormatTimestamp(end));
  return end - SystemClock().Now() > kEndsSoon ? Findings().Fine(ends)
                                               : Findings().Notice(ends, "renew it before");
}

// The finding where a connection was made, which the kernel does for whoever listens, and nothing
// came over it.
Findings DoesNotAnswer(const std::string& where) {
  return Findings().Problem(
      absl::StrCat(where, ": somebody listens there and does not answer"),
      "see what its process does, and its log: it was stopped, it hangs, or the machine "
      "is too busy; a daemon that hangs is to be restarted");
}

// gRPC does not tell its caller why a handshake failed, so this function looks at the certificate
// that the daemon shows, whoever signed it. Where the daemon shows none, nothing is said of its
// dates.
Findings ExamineCertificates(const Address& address, const client::TlsFiles& tls) {
  Findings findings;
  const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context(SSL_CTX_new(TLS_client_method()),
                                                                  &SSL_CTX_free);
  // Without the caller's certificate and ALPN the daemon would log that they are missing.
  if (SSL_CTX_use_certificate_chain_file(context.get(), tls.cert.c_str()) == 1) {
    findings.Add(ExamineDates(absl::StrCat("the client's certificate in ", tls.cert),
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
  const SteadyTime end = SteadyTime::Now() + kAnswerTimeout;
  while (BIO_do_handshake(connection.get()) != 1 && BIO_should_retry(connection.get()) &&
         SteadyTime::Now() < end) {
    BIO_wait(connection.get(), time(nullptr) + 1, kPollMilliseconds);
  }
  SSL* ssl = nullptr;
  BIO_get_ssl(connection.get(), &ssl);
  if (const X509* shown = SSL_get0_peer_certificate(ssl); shown != nullptr) {
    findings.Add(ExamineDates(absl::StrCat("the certificate of ", address.target), shown));
  } else if (sockaddr_storage peer{}; SteadyTime::Now() >= end) {
    socklen_t size = sizeof(peer);
    const int fd = static_cast<int>(BIO_get_fd(connection.get(), nullptr));
    const bool connected = getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) == 0;
    if (connected) findings.Add(DoesNotAnswer(address.target));
  }
  return findings;
}

Findings ExamineSocket(const std::string& path) {
  const std::string where = absl::StrCat("socket ", path);
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  path.copy(name.sun_path, sizeof(name.sun_path) - 1);
  const UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&name), sizeof(name)) == 0) {
    // The server of HTTP/2 speaks first, as soon as it has accepted.
    pollfd first{fd.get(), POLLIN, 0};
    char byte = 0;
    const bool answers =
        poll(&first, 1, static_cast<int>(kAnswerTimeout / absl::Milliseconds(1))) > 0 &&
        recv(fd.get(), &byte, 1, MSG_PEEK) > 0;
    return answers ? Findings().Fine(absl::StrCat(where, " answers")) : DoesNotAnswer(where);
  }
  const int error = errno;
  if (error == EAGAIN) return DoesNotAnswer(where);  // not even the kernel's queue has room
  return Findings().Problem(absl::StrCat(where, ": ", std::strerror(error)),
                            error == EACCES ? kAskForAccess : HowToStart());
}

}  // namespace

std::string HowToStart() {
  return absl::StrCat(
      "start a daemon with `convtuned`, or say where it is with --address or CONVTUNE_ADDRESS; "
      "else "
      "it is looked for at ",
      absl::StrJoin(ClientSocketPaths(), ", then at "));
}

Findings ExamineAddress(const Address& address, const client::TlsFiles& tls) {
  if (!address.unix_socket) return ExamineCertificates(address, tls);
  return ExamineSocket(address.target);
}

}  // namespace convtune::cli::app

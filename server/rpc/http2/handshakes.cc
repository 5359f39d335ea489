#include "server/rpc/http2/handshakes.h"

#include <netdb.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509_vfy.h>

#include <array>
#include <set>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"
#include "proto/monitoring/log.h"

namespace convtune::rpc::http2 {
namespace {

constexpr absl::Duration kBetweenLines = absl::Seconds(1);
constexpr size_t kMostPeers = 64;  // that have a line in that time

thread_local std::string current_peer;
thread_local bool handshake_failed = false;

// The index of the peer's address in an SSL's extra data. The address is there as soon as the SSL
// is made.
int PeerIndex() {
  static const int index = SSL_get_ex_new_index(
      0, nullptr,
      [](void*, void*, CRYPTO_EX_DATA* data, int at, long, void*) {  // NOLINT(google-runtime-int)
        if (!current_peer.empty()) CRYPTO_set_ex_data(data, at, new std::string(current_peer));
      },
      nullptr,
      [](void*, void* peer, CRYPTO_EX_DATA*, int, long, void*) {  // NOLINT(google-runtime-int)
        delete static_cast<std::string*>(peer);
      });
  return index;
}

// The reason of the failure that is the first in OpenSSL's queue, also in OpenSSL's words.
std::pair<HandshakeFailure, const char*> FailureOf(const SSL* ssl) {
  const unsigned long error = ERR_peek_error();  // NOLINT(google-runtime-int)
  const int reason = ERR_GET_REASON(error);
  if (ERR_GET_LIB(error) == ERR_LIB_SSL && reason == SSL_R_CERTIFICATE_VERIFY_FAILED) {
    const long result = SSL_get_verify_result(ssl);  // NOLINT(google-runtime-int)
    return {result == X509_V_ERR_CERT_HAS_EXPIRED     ? HandshakeFailure::kEnded
            : result == X509_V_ERR_CERT_NOT_YET_VALID ? HandshakeFailure::kNotBegun
                                                      : HandshakeFailure::kNotTrusted,
            X509_verify_cert_error_string(result)};
  }
  const char* const words = ERR_reason_error_string(error);
  if (ERR_GET_LIB(error) != ERR_LIB_SSL || words == nullptr) {
    return {HandshakeFailure::kOther, words == nullptr ? "no reason is known" : words};
  }
  if (reason == SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE) {
    return {HandshakeFailure::kNoCertificate, words};
  }
  // An alert that the client sent.
  return {reason >= SSL_AD_REASON_OFFSET ? HandshakeFailure::kRefused : HandshakeFailure::kOther,
          words};
}

// True if a failure with this peer may have a line of the log now.
bool HasTurn(const std::string& peer) {
  static Mutex mutex;
  static SteadyTime since = SteadyTime::InfinitePast();
  static auto* const logged = new std::set<std::string>;
  MutexLock lock(mutex);
  if (const SteadyTime now = SteadyTime::Now(); now - since >= kBetweenLines) {
    since = now;
    logged->clear();
  }
  return logged->size() < kMostPeers && logged->insert(peer).second;
}

}  // namespace

void SetHandshakePeer(const sockaddr* address, socklen_t size) {
  PeerIndex();
  // Without the port, which is another one for each connection.
  std::array<char, NI_MAXHOST> host{};
  const bool known =
      getnameinfo(address, size, host.data(), host.size(), nullptr, 0, NI_NUMERICHOST) == 0;
  current_peer = known ? host.data() : "an unknown address";
}

int AfterHandshake(SSL* ssl, int result) {
  handshake_failed = false;
  if (result > 0 || SSL_is_server(ssl) == 0 || SSL_get_error(ssl, result) != SSL_ERROR_SSL) {
    return result;
  }
  handshake_failed = true;
  const auto [failure, words] = FailureOf(ssl);
  const auto number = static_cast<size_t>(failure);
  ++TlsStats::Global().failed[number];
  const auto* known = static_cast<const std::string*>(SSL_get_ex_data(ssl, PeerIndex()));
  const std::string peer = known != nullptr ? *known : "an unknown address";
  if (HasTurn(peer)) {
    log::Warn("TLS handshake with $0 failed: $1 ($2)", peer, kHandshakeFailures[number], words);
  }
  return result;
}

bool TakeHandshakeFailed() { return std::exchange(handshake_failed, false); }

}  // namespace convtune::rpc::http2

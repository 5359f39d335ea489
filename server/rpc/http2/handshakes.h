// Handshakes of TLS that fail are counted, and logged with the peer: gRPC's own line
// has no peer, and anybody who can connect has it written as often as he likes.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

struct ssl_st;  // SSL

namespace convtune::rpc::http2 {

// Why a handshake failed. kRefused: the client refuses the server's certificate.
enum class HandshakeFailure { kEnded, kNotBegun, kNotTrusted, kNoCertificate, kRefused, kOther };
// By their numbers, as labels and for the log.
inline constexpr std::array<const char*, 6> kHandshakeFailures = {
    "certificate_ended", "certificate_not_begun", "certificate_not_trusted",
    "no_certificate",    "refused_by_client",     "other"};

// TlsStats say how TLS fares, for metrics. Thread-safe.
struct TlsStats {
  // The process's own.
  static TlsStats& Global() {
    static TlsStats stats;
    return stats;
  }

  // Of the server's certificate, in seconds since 1970; 0: nothing listens over TCP.
  std::atomic<int64_t> certificate_end{0};
  std::array<std::atomic<int64_t>, kHandshakeFailures.size()> failed{};  // by HandshakeFailure
};

// As long as it lives, the handshakes that this thread begins are with the peer of this
// connection.
class PeerOfHandshake {
 public:
  explicit PeerOfHandshake(int fd);
  ~PeerOfHandshake();
  PeerOfHandshake(const PeerOfHandshake&) = delete;
  PeerOfHandshake& operator=(const PeerOfHandshake&) = delete;
};

// What SSL_do_handshake gave, which is returned. A failure of a server's is counted in TlsStats,
// and is a line of the log, at most one a second for each peer. Thread-safe.
int AfterHandshake(ssl_st* ssl, int result);

// True if the thread's last handshake failed, and the first time that it is asked for that one.
// gRPC logs the failure next, on the same thread.
bool TakeHandshakeFailed();

}  // namespace convtune::rpc::http2

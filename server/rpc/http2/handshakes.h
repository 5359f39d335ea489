// Handshakes of TLS that fail are counted, and logged with the peer: gRPC's own line
// has no peer, and anybody who can connect has it written as often as he likes.
#pragma once

#include <sys/socket.h>

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

// The handshakes that this thread begins from now on are with the peer of this address.
void SetHandshakePeer(const sockaddr* address, socklen_t size);

// What SSL_do_handshake gave, which is returned. A failure of a server's is counted in TlsStats,
// and is a line of the log, at most one a second for each peer. Thread-safe.
int AfterHandshake(ssl_st* ssl, int result);

// True, once, after a handshake on this thread has failed: gRPC logs the failure next, on the same
// thread.
bool TakeHandshakeFailed();

}  // namespace convtune::rpc::http2

// TlsStats say how TLS fares, for metrics: when the server's certificate ends, and how many
// handshakes failed.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace convtune::rpc::http2 {

// Why a handshake failed. kRefused: the client refuses the server's certificate.
enum class HandshakeFailure { kEnded, kNotBegun, kNotTrusted, kNoCertificate, kRefused, kOther };
// By their numbers, as labels and for the log.
inline constexpr std::array<const char*, 6> kHandshakeFailures = {
    "certificate_ended", "certificate_not_begun", "certificate_not_trusted",
    "no_certificate",    "refused_by_client",     "other"};

// Thread-safe.
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

}  // namespace convtune::rpc::http2

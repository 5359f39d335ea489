// TlsStats say how TLS fares, for metrics: when the server's certificate ends.
#pragma once

#include <atomic>
#include <cstdint>

namespace convtune::rpc::http2 {

// Thread-safe.
struct TlsStats {
  // The process's own.
  static TlsStats& Global() {
    static TlsStats stats;
    return stats;
  }

  // Of the server's certificate, in seconds since 1970; 0: nothing listens over TCP.
  std::atomic<int64_t> certificate_end{0};
};

}  // namespace convtune::rpc::http2

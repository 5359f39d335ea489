// Handshakes of TLS that fail are counted, and logged with the peer: gRPC's own line
// has no peer, and anybody who can connect has it written as often as he likes.
#pragma once

#include <openssl/ssl.h>

namespace convtune::rpc::http2 {

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
int AfterHandshake(SSL* ssl, int result);

// True once after each such failure, on its thread: gRPC's line is about it.
bool TakeHandshakeFailed();

}  // namespace convtune::rpc::http2

// Guards what gRPC reads, without a copy and without another process or thread
// in between: this program's own recvmsg and SSL_read stand before those of the
// libraries, and look at the bytes that gRPC gets.
//
// In the same way its getpeername, which gRPC asks once for each connection, gives the client of a
// unix socket a name, "unix:uid=1000,pid=4242": ServerContext::peer() has it. That of a client over
// TCP is noted for the handshake that follows (SetHandshakePeer).
#pragma once

#include <cstdint>

namespace convtune::rpc::http2 {

// From now on a FrameGuard follows what is read from this connection, whose
// bytes are plain HTTP/2, until it ends: where the guard says no, reading fails as if
// the client had gone. REQUIRES: nobody has read from it yet. Thread-safe.
//
// Connections over TLS are guarded without being told: behind the encryption,
// where this process is the server.
void GuardReads(int fd);

// A number that no other socket of this machine has, as long as it runs; 0 if that
// cannot be had.
uint64_t CookieOf(int fd);

}  // namespace convtune::rpc::http2

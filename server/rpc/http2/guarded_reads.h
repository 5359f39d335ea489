// Guards what gRPC reads, without a copy and without another process or thread
// in between: this program's own recvmsg and SSL_read stand before those of the
// libraries, and look at the bytes that gRPC gets.
#pragma once

namespace convtune::rpc::http2 {

// From now on a FrameGuard follows what is read from this connection, whose
// bytes are plain HTTP/2, until it ends: where the guard says no, reading fails as if the client
// had gone. REQUIRES: nobody has read from it yet. Thread-safe.
//
// Connections over TLS are guarded without being told: behind the encryption,
// where this process is the server.
//
// `owner` is for EndReads.
void GuardReads(int fd, const void* owner = nullptr);
// For a connection over TLS: it is known to EndReads from now on. REQUIRES as
// GuardReads. Thread-safe.
void FollowReads(int fd, const void* owner);

// Ends the owner's connections, for gRPC as if the clients had gone: clients get
// UNAVAILABLE for calls without an answer. grpc::Server::Shutdown alone gives
// CANCELLED without a message to calls that arrive while it runs. Thread-safe.
void EndReads(const void* owner);
// True once gRPC has read all of the owner's connections to their end.
bool ReadsEnded(const void* owner);

}  // namespace convtune::rpc::http2

// Limits of the server as a whole; those of single fields are in
// request_validator.cc.
#pragma once

#include <cstdint>

namespace convtune::rpc::http2 {

inline constexpr int kMaxRequestBytes = 4 << 20;
inline constexpr int kMaxReplyBytes = 64 << 20;
// Of a BatchGet that asks for no more: what gRPC's clients take by default.
inline constexpr int kDefaultReplyBytes = 4 << 20;
// Of all replies that callers have not read; gRPC's quota does not count them.
inline constexpr int64_t kMaxUnreadBytes = 512 << 20;
// Per connection; a call beyond it waits in its client.
inline constexpr int kMaxConcurrentStreams = 4096;
// Buffers of all connections together; beyond it connections are shed.
inline constexpr int kMaxBufferBytes = 512 << 20;
// All together; the last eighth is for sockets with the role admin.
inline constexpr int kMaxConnections = 2048;
// Files for all else: database, workers, bundles.
inline constexpr int kReservedFiles = 256;
// Threads that gRPC's reflection may use: its service is a synchronous one.
inline constexpr int kMaxServerThreads = 16;
inline constexpr int kKeepaliveSeconds = 60;
inline constexpr int kKeepaliveTimeoutSeconds = 20;
inline constexpr int kMinClientPingSeconds = 10;
// An old connection is told to be replaced; its calls come to their end.
inline constexpr int kMaxConnectionAgeSeconds = 6 * 3600;

inline constexpr int64_t kMaxBundleBytes = int64_t{16} << 30;

}  // namespace convtune::rpc::http2

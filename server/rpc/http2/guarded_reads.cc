#include "server/rpc/http2/guarded_reads.h"

#include <dlfcn.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/strings/str_format.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"
#include "proto/monitoring/log.h"
#include "server/rpc/http2/frame_guard.h"
#include "server/rpc/http2/handshakes.h"
#include "server/rpc/http2/limits.h"

namespace convtune::rpc::http2 {
namespace {

constexpr absl::Duration kBetweenReadNotices = absl::Seconds(10);

TokenBucket* Shared() {
  static auto* const shared =
      new TokenBucket(FrameGuard::kAllResets, FrameGuard::kAllResetsPerSecond);
  return shared;
}

void SayWhy(const FrameGuard& guard) {
  static Mutex mutex;
  static SteadyTime next = SteadyTime::InfinitePast();
  {
    MutexLock lock(mutex);
    const SteadyTime now = SteadyTime::Now();
    if (now < next) return;
    next = now + kBetweenReadNotices;
  }
  log::Warn("a connection is ended: $0", guard.why());
}

struct Slot {
  std::atomic<bool> watched{false};
  Mutex mutex;
  std::optional<FrameGuard> guard GUARDED_BY(mutex);
  uint64_t cookie GUARDED_BY(mutex) = 0;
};

// By the connection's number: the listener refuses higher ones.
constexpr int kSlots = kMaxConnections + kReservedFiles;
Slot* SlotOf(int fd) {
  static auto* const slots = new std::array<Slot, kSlots>;
  return fd >= 0 && fd < kSlots ? &(*slots)[static_cast<size_t>(fd)] : nullptr;
}

// What recvmsg gave, which is returned, or an error in its place.
ssize_t AfterRead(int fd, const msghdr& message, ssize_t size) {
  Slot* const slot = SlotOf(fd);
  if (slot == nullptr || !slot->watched.load(std::memory_order_acquire)) return size;
  MutexLock lock(slot->mutex);
  if (size <= 0) {
    if (size == 0 || (errno != EAGAIN && errno != EINTR)) slot->watched = false;
    return size;
  }
  auto left = static_cast<size_t>(size);
  for (size_t i = 0; i < message.msg_iovlen && left > 0; ++i) {
    const iovec& part = message.msg_iov[i];
    const size_t length = std::min(part.iov_len, left);
    if (!slot->guard->Take({static_cast<const char*>(part.iov_base), length}, &SteadyTime::Now)) {
      // gRPC does not tell when it closes a connection. Another file may have the descriptor by
      // now, and its bytes are no concern of the guard.
      if (CookieOf(fd) != slot->cookie) {
        slot->watched = false;
        return size;
      }
      SayWhy(*slot->guard);
      errno = ECONNRESET;
      return -1;
    }
    left -= length;
  }
  return size;
}

// The guard of a TLS connection lives as long as that.
int GuardIndex() {
  static const int index = SSL_get_ex_new_index(
      0, nullptr, nullptr, nullptr,
      [](void*, void* guard, CRYPTO_EX_DATA*, int, long, void*) {  // NOLINT(google-runtime-int)
        delete static_cast<FrameGuard*>(guard);
      });
  return index;
}

int AfterRead(SSL* ssl, const void* bytes, int size) {
  if (size <= 0 || SSL_is_server(ssl) == 0) return size;
  auto* guard = static_cast<FrameGuard*>(SSL_get_ex_data(ssl, GuardIndex()));
  if (guard == nullptr) {
    guard = new FrameGuard(Shared());
    SSL_set_ex_data(ssl, GuardIndex(), guard);
  }
  // gRPC finds no error in OpenSSL's queue, so it takes the -1 for a failed read of the socket.
  if (guard->Take({static_cast<const char*>(bytes), static_cast<size_t>(size)}, &SteadyTime::Now)) {
    return size;
  }
  SayWhy(*guard);
  return -1;
}

template <typename Function>
Function* Next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));  // NOLINT
}

}  // namespace

void GuardReads(int fd) {
  Slot* const slot = SlotOf(fd);
  if (slot == nullptr) return;
  MutexLock lock(slot->mutex);
  slot->guard.emplace(Shared());
  slot->cookie = CookieOf(fd);
  slot->watched.store(true, std::memory_order_release);
}

uint64_t CookieOf(int fd) {
  uint64_t cookie = 0;
  socklen_t size = sizeof cookie;
  return getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &size) == 0 ? cookie : 0;
}

}  // namespace convtune::rpc::http2

#define CONVTUNE_EXPORT extern "C" __attribute__((visibility("default")))

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CONVTUNE_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define CONVTUNE_SANITIZED 1
#endif
#endif

#ifdef CONVTUNE_SANITIZED
// The sanitizer's own stands between this one and the library's.
extern "C" ssize_t __interceptor_recvmsg(int fd, msghdr* message, int flags);  // NOLINT
#endif

// libgrpc calls this one, too: a program's own functions come before its libraries'.
CONVTUNE_EXPORT ssize_t recvmsg(int fd, msghdr* message, int flags) {
#ifdef CONVTUNE_SANITIZED
  const ssize_t size = __interceptor_recvmsg(fd, message, flags);
#else
  static auto* const next = convtune::rpc::http2::Next<ssize_t(int, msghdr*, int)>("recvmsg");
  const ssize_t size = next(fd, message, flags);
#endif
  return convtune::rpc::http2::AfterRead(fd, *message, size);
}

CONVTUNE_EXPORT int getpeername(int fd, sockaddr* address, socklen_t* size) noexcept {
  const socklen_t room = *size;
  const int result = static_cast<int>(syscall(SYS_getpeername, fd, address, size));
  // gRPC asks for the peer of a TCP connection just before it begins the handshake.
  if (result == 0 && address->sa_family != AF_UNIX) {
    convtune::rpc::http2::SetHandshakePeer(address, std::min(*size, room));
  }
  ucred peer{};
  socklen_t length = sizeof(peer);
  // A client may have bound its end to a name of its own choice.
  if (result == 0 && address->sa_family == AF_UNIX && room >= sizeof(sockaddr_un) &&
      getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0) {
    auto* const name = reinterpret_cast<sockaddr_un*>(address);  // NOLINT
    absl::SNPrintF(name->sun_path, sizeof(name->sun_path), "uid=%d,pid=%d", peer.uid, peer.pid);
    *size = sizeof(sockaddr_un);
  }
  return result;
}

// Where OpenSSL is linked statically the linker is told to do the same.
#ifdef CONVTUNE_PORTABLE
CONVTUNE_EXPORT int __real_SSL_read(SSL* ssl, void* bytes, int size);   // NOLINT
CONVTUNE_EXPORT int __wrap_SSL_read(SSL* ssl, void* bytes, int size) {  // NOLINT
  return convtune::rpc::http2::AfterRead(ssl, bytes, __real_SSL_read(ssl, bytes, size));
}
CONVTUNE_EXPORT int __real_SSL_do_handshake(SSL* ssl);   // NOLINT
CONVTUNE_EXPORT int __wrap_SSL_do_handshake(SSL* ssl) {  // NOLINT
  return convtune::rpc::http2::AfterHandshake(ssl, __real_SSL_do_handshake(ssl));
}
#else
CONVTUNE_EXPORT int SSL_read(SSL* ssl, void* bytes, int size) {
  static auto* const next = convtune::rpc::http2::Next<int(SSL*, void*, int)>("SSL_read");
  return convtune::rpc::http2::AfterRead(ssl, bytes, next(ssl, bytes, size));
}
CONVTUNE_EXPORT int SSL_do_handshake(SSL* ssl) {
  static auto* const next = convtune::rpc::http2::Next<int(SSL*)>("SSL_do_handshake");
  return convtune::rpc::http2::AfterHandshake(ssl, next(ssl));
}
#endif

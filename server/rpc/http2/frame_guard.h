// A FrameGuard looks at HTTP/2 frames before gRPC (1.51) reads them, and refuses
// the inputs of gRPC's advisories that gRPC itself does not survive well:
//
// - CVE-2023-44487: a call that is reset at once is not counted among the
//   connection's calls any more, and keeps its 20 KB until a thread gets to it.
// - CVE-2023-33953: headers are parsed anew with every frame that continues
//   them, which takes time in the square of their length.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "absl/time/time.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"

namespace convtune::rpc::http2 {

// A TokenBucket holds up to `size` tokens, of which `per_second` come back. Thread-safe.
class TokenBucket {
 public:
  TokenBucket(double size, double per_second)
      : size_(size), per_second_(per_second), tokens_(size) {}
  // Takes one, and returns how many are left; below 0 there was none.
  double Take(SteadyTime now);

 private:
  const double size_;
  const double per_second_;
  Mutex mutex_;
  double tokens_ GUARDED_BY(mutex_);
  SteadyTime last_ GUARDED_BY(mutex_) = SteadyTime::InfinitePast();
};

// Follows the HTTP/2 frames of one client. Not thread-safe.
class FrameGuard {
 public:
  // Of one block of headers, as it is on the wire. gRPC refuses a call whose
  // headers are longer than 8 KiB, and says so: that is left to it.
  static constexpr size_t kMaxHeaderBytes = 64 << 10;
  static constexpr int kMaxHeaderFrames = 32;
  // A connection may reset so many calls at once, and so many a second in the long run.
  static constexpr double kResets = 1000;
  static constexpr double kResetsPerSecond = 200;
  // All connections together may reset so many. While they reset more, each of them may reset
  // kFewResets.
  static constexpr double kAllResets = 8000;
  static constexpr double kAllResetsPerSecond = 2000;
  static constexpr double kFewResets = 8;

  // `shared` outlives the guard: the resets of all connections.
  explicit FrameGuard(TokenBucket* shared) : shared_(shared) {}

  // Takes the next bytes of the connection. False, once and for all: it is to
  // be ended, and `why` says so. `now` is asked only where it matters.
  bool Take(std::string_view bytes, SteadyTime (*now)());
  std::string_view why() const { return why_; }

 private:
  static constexpr size_t kPreface = 24;
  static constexpr size_t kFrameHead = 9;

  void StartFrame(SteadyTime (*now)());
  void CountHeaders(size_t length);
  void CountReset(SteadyTime now);

  TokenBucket* const shared_;
  size_t skip_ = kPreface;  // of the preface or a payload
  std::array<unsigned char, kFrameHead> head_{};
  size_t head_size_ = 0;
  size_t header_bytes_ = 0;
  int header_frames_ = 0;
  TokenBucket resets_{kResets, kResetsPerSecond};
  std::string_view why_;  // empty: it goes on
};

}  // namespace convtune::rpc::http2

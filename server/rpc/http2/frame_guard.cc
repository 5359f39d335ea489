#include "server/rpc/http2/frame_guard.h"

#include <algorithm>
#include <cstring>

#include "proto/base/clock.h"

namespace convtune::rpc::http2 {
namespace {

// RFC 9113, section 6.
constexpr int kHeaders = 1;
constexpr int kRstStream = 3;
constexpr int kContinuation = 9;

}  // namespace

double TokenBucket::Take(SteadyTime now) {
  MutexLock lock(mutex_);
  if (now > last_) {
    const double back = absl::ToDoubleSeconds(now - last_) * per_second_;
    tokens_ = std::min(size_, tokens_ + back);
    last_ = now;
  }
  tokens_ = std::max(tokens_ - 1, -1.0);
  return tokens_;
}

bool FrameGuard::Take(std::string_view bytes, SteadyTime (*now)()) {
  while (why_.empty() && !bytes.empty()) {
    const size_t skipped = std::min(skip_, bytes.size());
    skip_ -= skipped;
    bytes.remove_prefix(skipped);
    const size_t taken = std::min(kFrameHead - head_size_, bytes.size());
    if (taken == 0) continue;
    std::memcpy(head_.data() + head_size_, bytes.data(), taken);
    head_size_ += taken;
    bytes.remove_prefix(taken);
    if (head_size_ == kFrameHead) StartFrame(now);
  }
  return why_.empty();
}

void FrameGuard::StartFrame(SteadyTime (*now)()) {
  head_size_ = 0;
  skip_ = size_t{head_[0]} << 16 | size_t{head_[1]} << 8 | head_[2];
  switch (head_[3]) {
    case kHeaders:
      header_bytes_ = 0;
      header_frames_ = 0;
      [[fallthrough]];
    case kContinuation:
      CountHeaders(skip_);
      break;
    case kRstStream:
      CountReset(now());
      break;
    default:
      break;
  }
}

void FrameGuard::CountHeaders(size_t length) {
  header_bytes_ += length;
  ++header_frames_;
  if (header_bytes_ > kMaxHeaderBytes || header_frames_ > kMaxHeaderFrames) {
    why_ = "the headers of one of its calls do not end";
  }
}

void FrameGuard::CountReset(SteadyTime now) {
  const bool plenty = shared_->Take(now) >= 0;
  const double left = resets_.Take(now);
  if (left < (plenty ? 0 : kResets - kFewResets)) why_ = "it resets too many calls";
}

}  // namespace convtune::rpc::http2

#include "tests/simgpu/runtime/l2_cache.h"

#include <algorithm>

namespace convtune::simgpu {
namespace {

uint64_t FirstLine(const Span& span) {
  return reinterpret_cast<uintptr_t>(span.data) / L2Cache::kLineBytes;
}

uint64_t EndLine(const Span& span) {
  return (reinterpret_cast<uintptr_t>(span.data) + static_cast<uintptr_t>(span.bytes) +
          L2Cache::kLineBytes - 1) /
         L2Cache::kLineBytes;
}

}  // namespace

int64_t L2Cache::Missing(const Span& span) const {
  if (span.bytes <= 0) return 0;
  const uint64_t first = FirstLine(span);
  const uint64_t end = EndLine(span);
  const auto lines = static_cast<int64_t>(end - first);
  // What is read last drives out what is read first.
  if (lines > bytes_ / kLineBytes) return span.bytes;
  int64_t present = 0;
  for (const Range& range : ranges_) {
    const uint64_t from = std::max(first, range.first);
    const uint64_t to = std::min(end, range.end);
    if (from < to) present += static_cast<int64_t>(to - from);
  }
  return std::max<int64_t>(0, span.bytes - present * kLineBytes);
}

void L2Cache::Forget(const Span& span) {
  if (span.bytes > 0) Remove({FirstLine(span), EndLine(span)});
}

void L2Cache::Remove(const Range& lines) {
  for (auto range = ranges_.begin(); range != ranges_.end();) {
    const uint64_t from = std::max(lines.first, range->first);
    const uint64_t to = std::min(lines.end, range->end);
    if (from >= to) {
      ++range;
      continue;
    }
    used_lines_ -= static_cast<int64_t>(to - from);
    if (to < range->end) ranges_.insert(std::next(range), {to, range->end});
    range->end = from;
    range = range->first < range->end ? std::next(range) : ranges_.erase(range);
  }
}

int64_t L2Cache::Touch(const Span& span) {
  const int64_t missing = Missing(span);
  if (span.bytes <= 0) return missing;
  const int64_t most = bytes_ / kLineBytes;
  Range touched = {FirstLine(span), EndLine(span)};
  if (static_cast<int64_t>(touched.end - touched.first) > most) {
    touched.first = touched.end - static_cast<uint64_t>(most);
  }
  Remove(touched);
  ranges_.push_front(touched);
  used_lines_ += static_cast<int64_t>(touched.end - touched.first);
  while (used_lines_ > most) {
    Range& oldest = ranges_.back();
    const uint64_t gone =
        std::min(oldest.end - oldest.first, static_cast<uint64_t>(used_lines_ - most));
    oldest.first += gone;
    used_lines_ -= static_cast<int64_t>(gone);
    if (oldest.first == oldest.end) ranges_.pop_back();
  }
  return missing;
}

}  // namespace convtune::simgpu

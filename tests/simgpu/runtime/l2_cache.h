// An L2Cache says which memory is in the simulated GPU's L2 cache.
#pragma once

#include <cstdint>
#include <list>

#include "tests/simgpu/runtime/work.h"

namespace convtune::simgpu {

// Least recently used lines leave first, in units of kLineBytes. Not thread-safe.
class L2Cache {
 public:
  static constexpr int64_t kLineBytes = 4096;

  explicit L2Cache(int64_t bytes) : bytes_(bytes) {}

  // Reads or writes `span` from its beginning to its end, and returns how many
  // of its bytes were not in the cache.
  int64_t Touch(const Span& span);
  // Takes it out of the cache, as nobody will touch it again. (On a card its lines
  // stay until others drive them out, and memory that is allocated at the same
  // addresses finds them: that would be chance here.)
  void Forget(const Span& span);
  // As Touch, without a change.
  int64_t Missing(const Span& span) const;
  int64_t bytes() const { return bytes_; }

 private:
  // Ranges of lines, the most recently used in front; no two overlap.
  struct Range {
    uint64_t first = 0;
    uint64_t end = 0;
  };

  void Remove(const Range& lines);

  const int64_t bytes_;
  std::list<Range> ranges_;
  int64_t used_lines_ = 0;
};

}  // namespace convtune::simgpu

// An Outputs keeps what was computed, so that many candidates for one problem cost one
// convolution, and writes it as each engine rounds it.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <string>
#include <vector>

#include "tests/simgpu/cudnn/program.h"

namespace convtune::simgpu {

// How an engine's result differs from the one that is computed here. Sums are added up in another
// order, so a few elements come out as a neighbour in their type: each 257th one, 4,096 at most,
// which of them by `seed`, and by `ulps`. Whole numbers below 2,048 stay, since sums of a few small
// integers are exact in any order; so do integer types.
struct Rounding {
  uint64_t seed = 0;
  int ulps = 1;
  friend bool operator==(const Rounding&, const Rounding&) = default;
};

// Not thread-safe.
class Outputs {
 public:
  // Writes the program's output to the memory of its id. `text` is Program::Text(). Nothing is
  // computed if the inputs look as they did, wherever they are: some of their bytes are compared.
  // Nothing is copied if the output still looks as it was left here.
  void Write(const Program& program, const std::string& text, const std::map<int64_t, void*>& data,
             const Rounding& rounding);
  // What is at an output is no more what Write left there.
  void Forget(const void* output) { written_.erase(output); }

 private:
  struct Entry {
    std::string key;
    uint64_t id = 0;
    std::vector<char> bytes;
  };
  struct Written {
    uint64_t id = 0;
    Rounding rounding;
    uint64_t fingerprint = 0;
  };
  const Entry& Find(const Program& program, const std::string& text,
                    const std::map<int64_t, void*>& data);

  std::list<Entry> entries_;  // the last used in front
  uint64_t last_id_ = 0;
  std::map<const void*, Written> written_;
};

}  // namespace convtune::simgpu

// A Lost counts the lines of this process's log that could not be written, or that nobody read
// in time. Value type.
#pragma once

#include <cstdint>

namespace convtune::log {

struct Lost {
  int64_t audit = 0;
  int64_t others = 0;
};

// Since the start. The log says so as soon as it can be written again. Thread-safe.
Lost LostLines();

}  // namespace convtune::log

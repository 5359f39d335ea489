#pragma once

#include <string>
#include <vector>

namespace convtune {

// One rule that an input breaks.
struct Violation {
  std::string field;  // path, for example "pad_low[1]" or "problems[3].groups"
  std::string rule;   // what holds instead, for example "must be at least 0, is -1"
};

// "field: rule; field: rule".
std::string ToString(const std::vector<Violation>& violations);

}  // namespace convtune

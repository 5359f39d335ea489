#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace convtune {

// One rule that an input breaks.
struct Violation {
  std::string field;  // path, for example "pad_low[1]" or "problems[3].groups"
  std::string rule;   // what holds instead, for example "must be at least 0, is -1"
};

// "field: rule; field: rule".
std::string ToString(const std::vector<Violation>& violations);

// INVALID_ARGUMENT with ToString() of it, which also says to ViolationIn what is broken.
absl::Status ViolationError(const Violation& violation);
// Nothing for errors that ViolationError did not make.
std::optional<Violation> ViolationIn(const absl::Status& status);

}  // namespace convtune

#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace convtune {

// A Violation is one rule that an input breaks.
struct Violation {
  std::string field;  // path, for example "pad_low[1]" or "problems[3].groups"
  std::string rule;   // what holds instead, for example "must be at least 0, is -1"
};

// "field: rule; field: rule".
std::string ToString(const std::vector<Violation>& violations);

// Returns INVALID_ARGUMENT with the violation's text. ViolationIn reads it back.
absl::Status ViolationError(const Violation& violation);
// Returns the violation, or nullopt where ViolationError did not make the error.
std::optional<Violation> ViolationIn(const absl::Status& status);

// A Missing is a thing that somebody named and that is not there. Value type.
struct Missing {
  std::string kind;  // "environment", "job", "tuning", "pin", "ban", "release"
  std::string name;
};

// NOT_FOUND with the message, which also says to MissingOf what is missing.
absl::Status MissingError(const Missing& missing, const std::string& message);
// Nothing for errors that MissingError did not make.
std::optional<Missing> MissingOf(const absl::Status& status);

}  // namespace convtune

// A Missing is a thing that somebody named and that is not there.
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"

namespace convtune {

// Value type.
struct Missing {
  std::string kind;  // "environment", "job", "tuning", "pin", "ban", "release"
  std::string name;
};

// NOT_FOUND with the message, which also says to MissingOf what is missing.
absl::Status MissingError(const Missing& missing, const std::string& message);
// Nothing for errors that MissingError did not make.
std::optional<Missing> MissingOf(const absl::Status& status);

}  // namespace convtune

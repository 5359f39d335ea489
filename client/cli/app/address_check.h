// A Finding is something that is right or wrong, and what to do about it. Those
// about the daemon's address are here, since every command that cannot connect
// says them.
#pragma once

#include <string>
#include <vector>

#include "client/cpp/client.h"

namespace convtune::cli {

enum class Severity { kFine, kNotice, kProblem };

// Value type.
struct Finding {
  Severity severity = Severity::kFine;
  std::string what;
  std::string advice;  // empty if there is nothing to do
};

// Of a socket's path, before any call.
std::vector<Finding> ExamineAddress(const Address& address);

}  // namespace convtune::cli

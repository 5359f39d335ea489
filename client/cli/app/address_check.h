// A Finding is something that is right or wrong, and what to do about it. Those
// about the daemon's address are here, since every command that cannot connect
// says them.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "client/cpp/client.h"

namespace convtune::cli::app {

enum class Severity { kFine, kNotice, kProblem };

// Value type.
struct Finding {
  Severity severity = Severity::kFine;
  std::string what;
  std::string advice;  // empty if there is nothing to do
};

// In the order in which they are found. Value type.
struct Findings : std::vector<Finding> {
  using std::vector<Finding>::vector;

  Findings& Fine(std::string what) { return Add({{Severity::kFine, std::move(what), ""}}); }
  Findings& Notice(std::string what, std::string advice) {
    return Add({{Severity::kNotice, std::move(what), std::move(advice)}});
  }
  Findings& Problem(std::string what, std::string advice) {
    return Add({{Severity::kProblem, std::move(what), std::move(advice)}});
  }
  Findings& Add(const Findings& more) {
    insert(end(), more.begin(), more.end());
    return *this;
  }
};

// The advice where no daemon is found.
std::string HowToStart();

// Connects, before any call, and waits two seconds at most: whether somebody listens there and
// answers, and over TCP the dates of the daemon's certificate and of the caller's.
Findings ExamineAddress(const Address& address, const client::TlsFiles& tls);

}  // namespace convtune::cli::app

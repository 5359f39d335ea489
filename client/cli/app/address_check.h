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

inline Finding Fine(std::string what) { return {Severity::kFine, std::move(what), ""}; }
inline Finding Notice(std::string what, std::string advice) {
  return {Severity::kNotice, std::move(what), std::move(advice)};
}
inline Finding Problem(std::string what, std::string advice) {
  return {Severity::kProblem, std::move(what), std::move(advice)};
}

// In the order in which they are found. Value type.
struct Findings : std::vector<Finding> {
  using std::vector<Finding>::vector;

  void Fine(std::string what) { push_back(app::Fine(std::move(what))); }
  void Notice(std::string what, std::string advice) {
    push_back(app::Notice(std::move(what), std::move(advice)));
  }
  void Problem(std::string what, std::string advice) {
    push_back(app::Problem(std::move(what), std::move(advice)));
  }
  void Add(const Findings& more) { insert(end(), more.begin(), more.end()); }
};

// The advice where no daemon is found.
std::string HowToStart();

// Connects, before any call, and waits two seconds at most: whether somebody listens there and
// answers, and over TCP the dates of the daemon's certificate and of the caller's.
Findings ExamineAddress(const client::Address& address, const client::TlsFiles& tls);

}  // namespace convtune::cli::app

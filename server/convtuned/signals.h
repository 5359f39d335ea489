// StopSignals are SIGTERM and SIGINT, which end the daemon, and SIGHUP, which does
// not.
#pragma once

#include <csignal>
#include <functional>
#include <utility>

#include "absl/time/time.h"

namespace convtune::convtuned {

// Blocks SIGTERM, SIGINT and SIGHUP for this thread and those it starts, and ignores
// SIGPIPE. Make it in main, before any other thread. Once one of the first two
// has come, stopped() stays true. For one thread.
class StopSignals {
 public:
  StopSignals();

  // Sets the function that WaitFor calls on SIGHUP; empty: none.
  void OnHangup(std::function<void()> reload) { reload_ = std::move(reload); }

  // Waits for SIGTERM or SIGINT; returns stopped().
  bool WaitFor(absl::Duration timeout);
  bool stopped() { return WaitFor(absl::ZeroDuration()); }

 private:
  sigset_t set_;
  std::function<void()> reload_;
  bool stopped_ = false;
};

}  // namespace convtune::convtuned

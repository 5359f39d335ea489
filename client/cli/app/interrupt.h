// An Interrupt makes an event of Ctrl-C, of SIGTERM, and of the end of a time.
#pragma once

#include <csignal>
#include <functional>
#include <memory>
#include <thread>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/base/clock.h"

namespace convtune::cli::app {

// While it lives, the first SIGINT, and the first SIGTERM, calls `on_interrupt` on a thread of
// its own, instead of ending the process; a second one of the same kind ends it. When `end`
// comes, that thread calls it once for that. At most one at a time.
class Interrupt {
 public:
  // RESOURCE_EXHAUSTED if there is no pipe to be had.
  static absl::StatusOr<std::unique_ptr<Interrupt>> Create(
      std::function<void()> on_interrupt, SteadyTime end = SteadyTime::InfiniteFuture());
  // Waits for a callback that runs.
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

 private:
  Interrupt(int read_fd, int write_fd, std::function<void()> on_interrupt, SteadyTime end);

  const int read_fd_;
  const int write_fd_;
  struct sigaction previous_int_ {};
  struct sigaction previous_term_ {};
  std::thread thread_;
};

}  // namespace convtune::cli::app

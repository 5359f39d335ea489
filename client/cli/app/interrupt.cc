#include "client/cli/app/interrupt.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <utility>

#include "proto/base/clock.h"

namespace convtune::cli::app {
namespace {

constexpr char kInterrupted = 'i';
constexpr char kStop = 's';
std::atomic<int> pipe_of_handler{-1};

// A signal handler may do no more than this.
void OnSignal(int) {
  const int saved = errno;
  [[maybe_unused]] const ssize_t written = write(pipe_of_handler.load(), &kInterrupted, 1);
  errno = saved;
}

// False if `end` comes first.
bool IsReadable(int fd, SteadyTime end) {
  constexpr absl::Duration kLongest = absl::Hours(1);
  pollfd waited{fd, POLLIN, 0};
  while (true) {
    const absl::Duration left = end - SteadyTime::Now();
    if (left <= absl::ZeroDuration()) return false;
    const auto millis =
        absl::ToInt64Milliseconds(absl::Ceil(std::min(left, kLongest), absl::Milliseconds(1)));
    const int ready = poll(&waited, 1, static_cast<int>(millis));
    if (ready > 0 || (ready < 0 && errno != EINTR)) return true;
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<Interrupt>> Interrupt::Create(std::function<void()> on_interrupt,
                                                             SteadyTime end) {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) return absl::ResourceExhaustedError("no pipe for signals");
  return std::unique_ptr<Interrupt>(new Interrupt(fds[0], fds[1], std::move(on_interrupt), end));
}

Interrupt::Interrupt(int read_fd, int write_fd, std::function<void()> on_interrupt, SteadyTime end)
    : read_fd_(read_fd), write_fd_(write_fd) {
  pipe_of_handler = write_fd;
  struct sigaction action {};
  action.sa_handler = OnSignal;
  action.sa_flags = SA_RESTART | SA_RESETHAND;
  sigaction(SIGINT, &action, &previous_int_);
  sigaction(SIGTERM, &action, &previous_term_);
  thread_ = std::thread([read_fd, callback = std::move(on_interrupt), end]() mutable {
    char byte = 0;
    while (true) {
      if (!IsReadable(read_fd, end)) {
        end = SteadyTime::InfiniteFuture();
      } else if (read(read_fd, &byte, 1) != 1 || byte == kStop) {
        return;
      }
      callback();
    }
  });
}

Interrupt::~Interrupt() {
  sigaction(SIGINT, &previous_int_, nullptr);
  sigaction(SIGTERM, &previous_term_, nullptr);
  [[maybe_unused]] const ssize_t written = write(write_fd_, &kStop, 1);
  thread_.join();
  pipe_of_handler = -1;
  close(read_fd_);
  close(write_fd_);
}

}  // namespace convtune::cli::app

#include "client/cli/app/interrupt.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <utility>

namespace convtune::cli {
namespace {

constexpr char kInterrupted = 'i';
constexpr char kStop = 's';
std::atomic<int> pipe_of_handler{-1};

// A signal handler may do no more than this.
void OnSigint(int) {
  const int saved = errno;
  [[maybe_unused]] const ssize_t written = write(pipe_of_handler.load(), &kInterrupted, 1);
  errno = saved;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Interrupt>> Interrupt::Create(std::function<void()> on_interrupt) {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) return absl::ResourceExhaustedError("no pipe for Ctrl-C");
  return std::unique_ptr<Interrupt>(new Interrupt(fds[0], fds[1], std::move(on_interrupt)));
}

Interrupt::Interrupt(int read_fd, int write_fd, std::function<void()> on_interrupt)
    : read_fd_(read_fd), write_fd_(write_fd) {
  pipe_of_handler = write_fd;
  struct sigaction action {};
  action.sa_handler = OnSigint;
  action.sa_flags = SA_RESTART | SA_RESETHAND;
  sigaction(SIGINT, &action, &previous_);
  thread_ = std::thread([read_fd, callback = std::move(on_interrupt)] {
    char byte = 0;
    while (read(read_fd, &byte, 1) == 1 && byte != kStop) callback();
  });
}

Interrupt::~Interrupt() {
  sigaction(SIGINT, &previous_, nullptr);
  [[maybe_unused]] const ssize_t written = write(write_fd_, &kStop, 1);
  thread_.join();
  pipe_of_handler = -1;
  close(read_fd_);
  close(write_fd_);
}

}  // namespace convtune::cli

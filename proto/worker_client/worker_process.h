// A WorkerProcess is a worker's process and the socket to it.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/base/unique_fd.h"

namespace convtune {

// The end of a worker.
struct WorkerExit {
  std::string description;  // "signal 11 (SIGSEGV)" or "exit status 3"
  // SIGKILL or SIGTERM that we did not send: no candidate's fault.
  bool killed_from_outside = false;
  bool success = false;  // exit status 0
};

// One owner thread, which must be the one that started it and must outlive it:
// workers ask the kernel to die with the thread that made them.
class WorkerProcess {
 public:
  // Starts `argv` with "--fd 3" behind it: a connected socket. The child has
  // its own process group, /dev/null for standard input, the descriptor `errors`
  // for output and errors, and no other descriptor of ours. `library_path` is its
  // LD_LIBRARY_PATH; empty: it has ours. NOT_FOUND: there is no such program.
  // `prints`: the socket is its standard output, and nothing is added to `argv`.
  static absl::StatusOr<std::unique_ptr<WorkerProcess>> Start(std::vector<std::string> argv,
                                                              const std::string& library_path = "",
                                                              bool prints = false,
                                                              int errors = STDERR_FILENO);
  // Kills and reaps it.
  ~WorkerProcess();
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;

  int fd() const { return socket_.get(); }
  pid_t pid() const { return pid_; }
  // Returns the end of the worker if it has ended; does not wait.
  std::optional<WorkerExit> Poll();
  // Waits a moment for an end that is under way, then kills it.
  WorkerExit Wait();
  // Ends its whole process group at once.
  WorkerExit Kill();

 private:
  WorkerProcess(pid_t pid, UniqueFd socket) : pid_(pid), socket_(std::move(socket)) {}

  const pid_t pid_;
  UniqueFd socket_;
  bool killed_by_us_ = false;
  std::optional<WorkerExit> exit_;
};

}  // namespace convtune

#include "proto/worker_client/worker_process.h"

#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "proto/base/child_program.h"
#include "proto/base/clock.h"
#include "proto/base/status_macros.h"

namespace convtune {
namespace {

constexpr int kWorkerFd = 3;
// A dying process may write a core before it can be reaped.
constexpr absl::Duration kReapTimeout = absl::Seconds(5);

WorkerExit Describe(int status, bool killed_by_us) {
  if (!WIFSIGNALED(status)) {
    return {absl::StrCat("exit status ", WEXITSTATUS(status)), false, WEXITSTATUS(status) == 0};
  }
  const int number = WTERMSIG(status);
  const char* const name = sigabbrev_np(number);  // "SEGV"
  return {absl::StrCat("signal ", number, name != nullptr ? absl::StrCat(" (SIG", name, ")") : ""),
          !killed_by_us && (number == SIGKILL || number == SIGTERM)};
}

}  // namespace

absl::StatusOr<std::unique_ptr<WorkerProcess>> WorkerProcess::Start(std::vector<std::string> argv,
                                                                    const std::string& library_path,
                                                                    bool prints, int errors) {
  if (argv.empty()) return absl::InvalidArgumentError("worker_argv: must not be empty");
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    return absl::ErrnoToStatus(errno, "socketpair");
  }
  UniqueFd ours(ends[0]);
  const UniqueFd theirs(ends[1]);
  std::vector<int> fds = {errors, errors, theirs.get()};  // kWorkerFd is the third
  if (prints) {
    fds = {theirs.get(), errors};
  } else {
    argv.insert(argv.end(), {"--fd", absl::StrCat(kWorkerFd)});
  }
  Variables variables;
  if (!library_path.empty()) variables.emplace_back("LD_LIBRARY_PATH", library_path);
  ASSIGN_OR_RETURN(const pid_t pid, Spawn(std::move(argv), variables, fds, /*apart=*/true));
  return std::unique_ptr<WorkerProcess>(new WorkerProcess(pid, std::move(ours)));
}

WorkerProcess::~WorkerProcess() { Kill(); }

std::optional<WorkerExit> WorkerProcess::Poll() {
  if (exit_) return exit_;
  siginfo_t info = {};
  if (waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
      info.si_pid != pid_) {
    return std::nullopt;
  }
  // Its children end too, while its number still names its process group.
  kill(-pid_, SIGKILL);
  int status = 0;
  if (waitpid(pid_, &status, 0) == pid_) exit_ = Describe(status, killed_by_us_);
  return exit_;
}

WorkerExit WorkerProcess::Wait() {
  const SteadyTime deadline = SteadyTime::Now() + kReapTimeout;
  while (!Poll() && SteadyTime::Now() < deadline) absl::SleepFor(absl::Milliseconds(2));
  return Kill();
}

WorkerExit WorkerProcess::Kill() {
  if (Poll()) return *exit_;
  killed_by_us_ = true;
  kill(-pid_, SIGKILL);
  // A process that is stuck in the driver may outlive SIGKILL: nobody waits
  // for it for ever, and init reaps it in the end.
  const SteadyTime deadline = SteadyTime::Now() + kReapTimeout;
  while (!Poll() && SteadyTime::Now() < deadline) absl::SleepFor(absl::Milliseconds(2));
  if (!exit_) exit_ = WorkerExit{"it does not end after SIGKILL", false};
  return *exit_;
}

}  // namespace convtune

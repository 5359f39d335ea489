#include "client/cli/commands/run/run_program.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace convtune::cli::commands::run {
namespace {

// What is passed on.
constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM};

[[noreturn]] void Exec(const std::vector<std::string>& command, const app::Variables& variables,
                       const sigset_t& mask, int report_fd) {
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
  sigprocmask(SIG_SETMASK, &mask, nullptr);
  execvp(argv[0], argv.data());
  const int error = errno;
  [[maybe_unused]] const ssize_t written = write(report_fd, &error, sizeof error);
  _exit(127);
}

// The errno of the exec that failed; 0 if it did not.
int ReadExecError(int fd) {
  int error = 0;
  ssize_t size = 0;
  do {
    size = read(fd, &error, sizeof error);
  } while (size < 0 && errno == EINTR);
  return size == sizeof error ? error : 0;
}

ProgramEnd WaitPassingSignals(pid_t child, const sigset_t& signals) {
  while (true) {
    int status = 0;
    if (waitpid(child, &status, WNOHANG) == child) {
      ProgramEnd end;
      if (WIFSIGNALED(status)) {
        end.signal = WTERMSIG(status);
      } else {
        end.exit_code = WEXITSTATUS(status);
      }
      return end;
    }
    siginfo_t info{};
    const int signal = sigwaitinfo(&signals, &info);
    // A terminal's go to every process in front of it by themselves.
    if (signal > 0 && signal != SIGCHLD && info.si_code != SI_KERNEL) kill(child, signal);
  }
}

}  // namespace

absl::StatusOr<ProgramEnd> RunProgramAndWait(const std::vector<std::string>& command,
                                             const app::Variables& variables) {
  int report[2];
  if (pipe2(report, O_CLOEXEC) != 0) {
    return absl::ResourceExhaustedError(absl::StrCat("pipe: ", std::strerror(errno)));
  }
  sigset_t signals;
  sigset_t before;
  sigemptyset(&signals);
  for (const int signal : kSignals) sigaddset(&signals, signal);
  sigaddset(&signals, SIGCHLD);
  sigprocmask(SIG_BLOCK, &signals, &before);
  const pid_t child = fork();
  if (child == 0) Exec(command, variables, before, report[1]);
  const int fork_error = errno;
  close(report[1]);
  const int exec_error = child > 0 ? ReadExecError(report[0]) : 0;
  close(report[0]);
  absl::StatusOr<ProgramEnd> end =
      absl::ResourceExhaustedError(absl::StrCat("fork: ", std::strerror(fork_error)));
  if (child > 0) end = WaitPassingSignals(child, signals);
  sigprocmask(SIG_SETMASK, &before, nullptr);
  if (exec_error == 0) return end;
  const std::string message = absl::StrCat(command[0], ": ", std::strerror(exec_error));
  if (exec_error == ENOENT) return absl::NotFoundError(message);
  return absl::PermissionDeniedError(message);
}

}  // namespace convtune::cli::commands::run

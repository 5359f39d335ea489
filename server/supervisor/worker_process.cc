#include "server/supervisor/worker_process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "proto/base/child_program.h"
#include "proto/base/clock.h"

namespace convtune::supervisor {
namespace {

constexpr int kWorkerFd = 3;
// A dying process may write a core before it can be reaped.
constexpr absl::Duration kReapTimeout = absl::Seconds(5);

// posix_spawn's two helpers, destroyed together.
class SpawnSetup {
 public:
  SpawnSetup() {
    posix_spawn_file_actions_init(&actions_);
    posix_spawnattr_init(&attributes_);
  }
  ~SpawnSetup() {
    posix_spawnattr_destroy(&attributes_);
    posix_spawn_file_actions_destroy(&actions_);
  }
  SpawnSetup(const SpawnSetup&) = delete;
  SpawnSetup& operator=(const SpawnSetup&) = delete;

  // The child has `socket` as `fd`. Returns an errno.
  int Prepare(int socket, int fd) {
    int error = posix_spawn_file_actions_addopen(&actions_, 0, "/dev/null", O_RDONLY, 0);
    if (error == 0) error = posix_spawn_file_actions_adddup2(&actions_, 2, 1);
    if (error == 0) error = posix_spawn_file_actions_adddup2(&actions_, socket, fd);
    // Not every library that we link sets close-on-exec.
    if (error == 0) {
      error = posix_spawn_file_actions_addclosefrom_np(&actions_, std::max(fd, STDERR_FILENO) + 1);
    }
    sigset_t none;
    sigemptyset(&none);
    sigset_t all;
    sigfillset(&all);
    if (error == 0) error = posix_spawnattr_setsigmask(&attributes_, &none);
    if (error == 0) error = posix_spawnattr_setsigdefault(&attributes_, &all);
    if (error == 0) error = posix_spawnattr_setpgroup(&attributes_, 0);
    if (error == 0) {
      error = posix_spawnattr_setflags(
          &attributes_, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    }
    return error;
  }

  const posix_spawn_file_actions_t* actions() const { return &actions_; }
  const posix_spawnattr_t* attributes() const { return &attributes_; }

 private:
  posix_spawn_file_actions_t actions_;
  posix_spawnattr_t attributes_;
};

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

absl::StatusOr<std::unique_ptr<WorkerProcess>> WorkerProcess::Start(
    const std::vector<std::string>& argv, const std::string& library_path) {
  std::vector<std::string> arguments = argv;
  arguments.insert(arguments.end(), {"--fd", absl::StrCat(kWorkerFd)});
  return Spawn(argv.empty() ? argv : arguments, library_path, kWorkerFd);
}

absl::StatusOr<std::unique_ptr<WorkerProcess>> WorkerProcess::StartPrinting(
    const std::vector<std::string>& argv, const std::string& library_path) {
  return Spawn(argv, library_path, STDOUT_FILENO);
}

absl::StatusOr<std::unique_ptr<WorkerProcess>> WorkerProcess::Spawn(std::vector<std::string> argv,
                                                                    const std::string& library_path,
                                                                    int fd) {
  if (argv.empty()) return absl::InvalidArgumentError("worker_argv: must not be empty");
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    return absl::ErrnoToStatus(errno, "socketpair");
  }
  UniqueFd ours(ends[0]);
  UniqueFd theirs(ends[1]);
  if (theirs.get() == fd) {
    // dup2 onto itself would leave the close-on-exec flag to the C library.
    UniqueFd moved(fcntl(theirs.get(), F_DUPFD_CLOEXEC, std::max(fd, STDERR_FILENO) + 1));
    if (!moved.valid()) return absl::ErrnoToStatus(errno, "fcntl");
    std::swap(theirs, moved);
  }
  std::vector<std::string> variables = EnvironmentWith(
      library_path.empty() ? Variables() : Variables{{"LD_LIBRARY_PATH", library_path}});
  SpawnSetup setup;
  pid_t pid = 0;
  int error = setup.Prepare(theirs.get(), fd);
  if (error == 0) {
    error = posix_spawn(&pid, argv[0].c_str(), setup.actions(), setup.attributes(),
                        PointersTo(&argv).data(), PointersTo(&variables).data());
  }
  if (error != 0) return absl::ErrnoToStatus(error, absl::StrCat("cannot start ", argv[0]));
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

}  // namespace convtune::supervisor

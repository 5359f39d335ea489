#include "proto/base/child_program.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/base/poll_until.h"
#include "proto/base/status_macros.h"
#include "proto/base/unique_fd.h"

namespace convtune {
namespace {

// False if the end did not come before `over`.
bool ReadToEnd(int fd, SteadyTime over, std::string* text) {
  char buffer[65536];
  pollfd entries[] = {{fd, POLLIN, 0}};
  while (true) {
    // A child that goes on printing is always ready.
    if (SteadyTime::Now() >= over || PollUntil(entries, over) == 0) return false;
    const ssize_t size = read(fd, buffer, sizeof buffer);
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return true;
    text->append(buffer, static_cast<size_t>(size));
  }
}

// Our environment with `variables`, as NAME=VALUE.
std::vector<std::string> EnvironmentWith(const Variables& variables) {
  std::vector<std::string> entries;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const bool replaced =
        std::any_of(variables.begin(), variables.end(), [&](const auto& variable) {
          return absl::StartsWith(*entry, absl::StrCat(variable.first, "="));
        });
    if (!replaced) entries.emplace_back(*entry);
  }
  for (const auto& [name, value] : variables) entries.push_back(absl::StrCat(name, "=", value));
  return entries;
}

}  // namespace

std::vector<char*> PointersTo(std::vector<std::string>* words) {
  std::vector<char*> pointers;
  for (std::string& word : *words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

std::string PythonInterpreter() {
  const char* const chosen = getenv("CONVTUNE_PYTHON");
  return chosen != nullptr && *chosen != '\0' ? chosen : "python3";
}

absl::StatusOr<pid_t> Spawn(std::vector<std::string> command, const Variables& variables,
                            const std::vector<int>& fds, bool apart) {
  std::vector<std::string> entries = EnvironmentWith(variables);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  int next = STDOUT_FILENO;
  // One that has its number already loses close-on-exec by that.
  for (const int fd : fds) posix_spawn_file_actions_adddup2(&actions, fd, next++);
  // Not every library that we link sets close-on-exec.
  posix_spawn_file_actions_addclosefrom_np(&actions, next);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  if (apart) {
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setflags(
        &attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  }
  pid_t child = 0;
  const int error = posix_spawnp(&child, command[0].c_str(), &actions, &attributes,
                                 PointersTo(&command).data(), PointersTo(&entries).data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (error == 0) return child;
  return absl::ErrnoToStatus(error, absl::StrCat(command[0], " cannot be run"));
}

absl::StatusOr<ProgramOutput> RunToEnd(const std::vector<std::string>& command,
                                       const Variables& variables, ChildErrors errors,
                                       absl::Duration limit) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return absl::ErrnoToStatus(errno, "pipe");
  const UniqueFd out(ends[0]);
  UniqueFd in(ends[1]);
  const int error_fd = errors == ChildErrors::kOutput ? in.get() : STDERR_FILENO;
  const absl::StatusOr<pid_t> started = Spawn(command, variables, {in.get(), error_fd});
  if (!started.ok()) return absl::FailedPreconditionError(started.status().message());
  const pid_t child = *started;
  in = UniqueFd();  // with it open here, too, the child's end would never be seen
  ProgramOutput output;
  const bool ended = ReadToEnd(out.get(), SteadyTime::Now() + limit, &output.text);
  if (!ended) kill(child, SIGKILL);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  if (!ended) {
    return absl::DeadlineExceededError(
        absl::StrCat(command[0], " did not end within ", absl::FormatDuration(limit)));
  }
  output.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return output;
}

}  // namespace convtune

#include "server/convtuned/child_output.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

extern char** environ;

namespace convtune::convtuned {
namespace {

constexpr size_t kMaxOutput = 1 << 20;
constexpr int kPollMs = 100;

// A program and the pipe from its standard output. Kills and reaps it.
class Child {
 public:
  Child() = default;
  ~Child() {
    Close();
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
  }
  Child(Child&& other) noexcept
      : pid_(std::exchange(other.pid_, -1)), fd_(std::exchange(other.fd_, -1)) {}
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  Child& operator=(Child&&) = delete;

  absl::Status Start(const std::vector<std::string>& command) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
      return absl::ErrnoToStatus(errno, "pipe");
    }
    fd_ = ends[0];
    std::vector<char*> argv;
    for (const std::string& argument : command) {
      argv.push_back(const_cast<char*>(argument.c_str()));  // not written to
    }
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    // The daemon blocks signals; its children must not inherit that.
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    sigset_t none;
    sigemptyset(&none);
    posix_spawnattr_setsigmask(&attributes, &none);
    sigset_t defaults;
    sigemptyset(&defaults);
    sigaddset(&defaults, SIGPIPE);
    posix_spawnattr_setsigdefault(&attributes, &defaults);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    const int error =
        posix_spawn(&pid_, command[0].c_str(), &actions, &attributes, argv.data(), environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    if (error != 0) {
      pid_ = -1;
      Close();
      const std::string text = absl::StrCat("cannot run ", command[0], ": ", std::strerror(error));
      return error == ENOENT ? absl::NotFoundError(text) : absl::InternalError(text);
    }
    return absl::OkStatus();
  }

  // -1 once all was read.
  int fd() const { return fd_; }
  pid_t pid() const { return pid_; }

  void Read(std::string* text) {
    char buffer[4096];
    const ssize_t count = read(fd_, buffer, sizeof(buffer));
    if (count > 0) {
      text->append(buffer, std::min(static_cast<size_t>(count), kMaxOutput - text->size()));
    } else if (count == 0 || errno != EINTR) {
      Close();
    }
  }

  // Waits for the end of a program that has closed its output.
  absl::Status Wait() {
    int state = 0;
    while (waitpid(pid_, &state, 0) < 0 && errno == EINTR) {
    }
    pid_ = -1;
    if (WIFEXITED(state) && WEXITSTATUS(state) == 0) {
      return absl::OkStatus();
    }
    return absl::InternalError(WIFSIGNALED(state)
                                   ? absl::StrCat("it died of signal ", WTERMSIG(state))
                                   : absl::StrCat("it ended with status ", WEXITSTATUS(state)));
  }

 private:
  void Close() {
    if (fd_ >= 0) {
      close(std::exchange(fd_, -1));
    }
  }

  pid_t pid_ = -1;
  int fd_ = -1;
};

}  // namespace

std::vector<ChildOutput> RunPrograms(const std::vector<std::vector<std::string>>& commands,
                                     const supervisor::StartLimits& limits,
                                     const std::function<bool()>& stop) {
  std::vector<supervisor::StartTimeout> timeouts(commands.size(),
                                                 supervisor::StartTimeout(limits, absl::Now()));
  std::vector<ChildOutput> outputs(commands.size());
  std::vector<Child> children;
  children.reserve(commands.size());
  for (size_t i = 0; i < commands.size(); ++i) {
    outputs[i].status = children.emplace_back().Start(commands[i]);
  }
  bool stopped = false;
  while (!stopped) {
    std::vector<pollfd> polled;
    std::vector<size_t> owners;
    for (size_t i = 0; i < children.size(); ++i) {
      if (children[i].fd() >= 0 && outputs[i].status.ok()) {
        polled.push_back({children[i].fd(), POLLIN, 0});
        owners.push_back(i);
      }
    }
    if (polled.empty()) {
      break;
    }
    poll(polled.data(), polled.size(), kPollMs);
    for (size_t k = 0; k < polled.size(); ++k) {
      if (polled[k].revents != 0) {
        children[owners[k]].Read(&outputs[owners[k]].text);
      }
    }
    stopped = stop();
    for (const size_t i : owners) {
      if (children[i].fd() < 0) continue;
      if (stopped) outputs[i].status = absl::CancelledError("stopped");
      timeouts[i].Saw(supervisor::WorkDone(children[i].pid()) + outputs[i].text.size(),
                      absl::Now());
      if (outputs[i].status.ok() && absl::Now() >= timeouts[i].end()) {
        outputs[i].status = absl::DeadlineExceededError(timeouts[i].reason());
      }
    }
  }
  for (size_t i = 0; i < children.size(); ++i) {
    if (outputs[i].status.ok()) outputs[i].status = children[i].Wait();
  }
  return outputs;
}

}  // namespace convtune::convtuned

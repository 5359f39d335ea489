#include "client/cli/input/onnx_problems.h"

#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace convtune::cli {
namespace {

constexpr char kHowTo[] =
    "pip install './client/python[onnx]' in a checkout of convtune, or name its interpreter with "
    "CONVTUNE_PYTHON";

// All that comes until the other end is closed.
std::string ReadAll(int fd) {
  std::string all;
  char buffer[65536];
  while (true) {
    const ssize_t size = read(fd, buffer, sizeof buffer);
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return all;
    all.append(buffer, static_cast<size_t>(size));
  }
}

}  // namespace

bool IsOnnxFile(const std::string& path) {
  return absl::EndsWith(absl::AsciiStrToLower(path), ".onnx");
}

absl::StatusOr<std::string> OnnxProblems(const std::string& path,
                                         const std::vector<std::string>& options) {
  if (access(path.c_str(), R_OK) != 0) {
    return absl::NotFoundError(absl::StrCat(path, ": cannot be read: ", std::strerror(errno)));
  }
  const char* const chosen = getenv("CONVTUNE_PYTHON");
  const std::string python = chosen != nullptr && chosen[0] != '\0' ? chosen : "python3";
  // A path, so that no file is taken for an option.
  std::vector<std::string> words = {python, "-m", "convtune", "problems",
                                    path[0] == '/' ? path : "./" + path};
  words.insert(words.end(), options.begin(), options.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);

  int out[2];
  if (pipe2(out, O_CLOEXEC) != 0) {
    return absl::ResourceExhaustedError(absl::StrCat("pipe: ", std::strerror(errno)));
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
  pid_t child = 0;
  const int error = posix_spawnp(&child, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(out[1]);
  if (error != 0) {
    close(out[0]);
    return absl::FailedPreconditionError(
        absl::StrCat(path, ": an ONNX model is read by the Python package, but ", python,
                     " cannot be run (", std::strerror(error), "): ", kHowTo));
  }
  std::string text = ReadAll(out[0]);
  close(out[0]);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": `", python,
                     " -m convtune problems` could not read the model (what it said stands above); "
                     "if the package is missing: ",
                     kHowTo));
  }
  return text;
}

}  // namespace convtune::cli

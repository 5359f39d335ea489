#include "client/cli/input/onnx_problems.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cli/app/child_program.h"

namespace convtune::cli::input {
namespace {

constexpr char kHowTo[] =
    "pip install './client/python[onnx]' in a checkout of convtune, or name its interpreter with "
    "CONVTUNE_PYTHON";

// The exit code of `python -m convtune` for usage and models.
constexpr int kRefused = 2;

}  // namespace

absl::StatusOr<std::string> OnnxProblems(const std::string& path,
                                         const std::vector<std::string>& options) {
  if (access(path.c_str(), R_OK) != 0) {
    return absl::NotFoundError(absl::StrCat(path, ": cannot be read: ", std::strerror(errno)));
  }
  const std::string python = app::PythonInterpreter();
  // A path, so that no file is taken for an option.
  std::vector<std::string> words = {python, "-m", "convtune", "problems",
                                    path[0] == '/' ? path : "./" + path};
  words.insert(words.end(), options.begin(), options.end());
  auto ran = app::RunToEnd(words, {}, app::ChildErrors::kOurs);
  if (!ran.ok()) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, ": an ONNX model is read by the Python package, but ",
                     ran.status().message(), ": ", kHowTo));
  }
  if (ran->exit_code != 0) {
    // It ends with kRefused where it has read the model and says why it does not take it.
    const bool refused = ran->exit_code == kRefused;
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": `", python,
                     " -m convtune problems` could not read the model (what it said stands above)",
                     refused ? "" : "; if the package is missing: ", refused ? "" : kHowTo));
  }
  return std::move(ran->text);
}

}  // namespace convtune::cli::input

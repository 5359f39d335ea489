#include "client/cli/commands/run/preload_library.h"

#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace convtune::cli {
namespace {

// Folders, from that of this program, in which the libraries may lie: a build
// folder's, an installation's, Debian's, and beside it.
constexpr const char* kFolders[] = {
    "/../lib/",          "/../lib64/", "/../lib/x86_64-linux-gnu/", "/../lib/aarch64-linux-gnu/",
    "/../lib/convtune/", "/"};

}  // namespace

absl::StatusOr<std::string> FindPreloadLibrary(const std::string& name) {
  char program[PATH_MAX] = {};
  const ssize_t size = readlink("/proc/self/exe", program, sizeof program - 1);
  const std::string path(program, size > 0 ? static_cast<size_t>(size) : 0);
  const std::string folder = path.substr(0, path.rfind('/'));
  std::vector<std::string> tried;
  for (const char* relative : kFolders) {
    const std::string candidate = absl::StrCat(folder, relative, name);
    char real[PATH_MAX];
    if (realpath(candidate.c_str(), real) != nullptr) return std::string(real);
    tried.push_back(candidate);
  }
  return absl::FailedPreconditionError(
      absl::StrCat(name, " is in none of the places where it should be; say where with --library: ",
                   absl::StrJoin(tried, ", ")));
}

}  // namespace convtune::cli

#include "client/cli/commands/run/preload_library.h"

#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace convtune::cli::commands::run {
namespace {

namespace fs = std::filesystem;

// Folders, from that of this program, in which the libraries may lie: a build
// folder's, an installation's, Debian's, and beside it.
constexpr const char* kFolders[] = {
    "/../lib/",          "/../lib64/", "/../lib/x86_64-linux-gnu/", "/../lib/aarch64-linux-gnu/",
    "/../lib/convtune/", "/"};

}  // namespace

absl::StatusOr<std::string> FindPreloadLibrary() {
  std::error_code error;
  const std::string folder = fs::read_symlink("/proc/self/exe", error).parent_path();
  std::vector<std::string> tried;
  for (const char* relative : kFolders) {
    const std::string candidate = absl::StrCat(folder, relative, kPreloadLibrary);
    const fs::path real = fs::canonical(candidate, error);
    if (!error) return real.string();
    tried.push_back(candidate);
  }
  return absl::FailedPreconditionError(absl::StrCat(
      kPreloadLibrary, " is in none of the places where it should be; say where with --library: ",
      absl::StrJoin(tried, ", ")));
}

}  // namespace convtune::cli::commands::run

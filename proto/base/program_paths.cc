#include "proto/base/program_paths.h"

#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace convtune {
namespace {

namespace fs = std::filesystem;

fs::path ProgramFolder() {
  std::error_code error;
  return fs::read_symlink("/proc/self/exe", error).parent_path();
}

}  // namespace

std::string DefaultWorkerPath() { return ProgramFolder() / "convtune-worker"; }

absl::StatusOr<std::string> FindProfile(const std::string& name_or_file) {
  std::error_code error;
  if (fs::is_regular_file(name_or_file, error)) {
    return fs::absolute(name_or_file, error).string();
  }
  constexpr char kPrefix[] = "profile:";
  std::string name = name_or_file;
  if (name.rfind(kPrefix, 0) == 0) {
    name.erase(0, sizeof(kPrefix) - 1);
  }
  const fs::path installed = ProgramFolder().parent_path() / "share/convtune/profiles";
  const fs::path source = CONVTUNE_PROFILES_DIR;
  if (name.find('/') == std::string::npos) {
    for (const fs::path& folder : {installed, source}) {
      const fs::path candidate = folder / (name + ".json");
      if (fs::is_regular_file(candidate, error)) {
        return candidate.string();
      }
    }
  }
  return absl::NotFoundError(absl::StrCat("--profile: ", name_or_file,
                                          " is neither a file nor a profile in ",
                                          installed.string(), " or ", source.string()));
}

}  // namespace convtune

#include "proto/base/program_paths.h"

#include <array>
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

// Of those that are installed and of those in the source tree.
std::array<fs::path, 2> ProfileFolders() {
  return {ProgramFolder().parent_path() / "share/convtune/profiles", CONVTUNE_PROFILES_DIR};
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
  const auto folders = ProfileFolders();
  if (name.find('/') == std::string::npos) {
    for (const fs::path& folder : folders) {
      const fs::path candidate = folder / (name + ".json");
      if (fs::is_regular_file(candidate, error)) {
        return candidate.string();
      }
    }
  }
  return absl::NotFoundError(absl::StrCat("--profile: ", name_or_file,
                                          " is neither a file nor a profile in ",
                                          folders[0].string(), " or ", folders[1].string()));
}

std::set<std::string> ProfileNames() {
  std::set<std::string> names;
  std::error_code error;
  for (const fs::path& folder : ProfileFolders()) {
    for (const fs::directory_entry& file : fs::directory_iterator(folder, error)) {
      if (file.path().extension() == ".json") names.insert(file.path().stem().string());
    }
  }
  return names;
}

}  // namespace convtune

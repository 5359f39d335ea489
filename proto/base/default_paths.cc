#include "proto/base/default_paths.h"

#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"

namespace convtune {
namespace {

// The XDG base directory specification: relative paths are invalid and ignored.
std::string AbsoluteFromEnvironment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && value[0] == '/' ? value : "";
}

std::string HomeDirectory() {
  std::string home = AbsoluteFromEnvironment("HOME");
  if (!home.empty()) {
    return home;
  }
  std::vector<char> buffer(16384);
  passwd entry{};
  passwd* found = nullptr;
  if (getpwuid_r(geteuid(), &entry, buffer.data(), buffer.size(), &found) == 0 &&
      found != nullptr && found->pw_dir != nullptr) {
    return found->pw_dir;
  }
  return "/";
}

constexpr char kSystemSocket[] = "/run/convtune/convtune.sock";
constexpr char kServiceDir[] = "/var/lib/convtune";

std::string UserStateDir() { return UserFolder("XDG_STATE_HOME", ".local/state"); }

// systemd separates several directories by colons; the first one is ours.
std::string ServiceStateDir() {
  const std::string service = AbsoluteFromEnvironment("STATE_DIRECTORY");
  return service.substr(0, service.find(':'));
}

namespace fs = std::filesystem;

// Of those that are installed and of those in the source tree.
std::array<fs::path, 2> ProfileFolders() {
  return {fs::path(ProgramFolder()).parent_path() / "share/convtune/profiles",
          CONVTUNE_PROFILES_DIR};
}

}  // namespace

std::string UserFolder(const char* variable, const std::string& below_home) {
  const std::string base = AbsoluteFromEnvironment(variable);
  return (base.empty() ? absl::StrCat(HomeDirectory(), "/", below_home) : base) + "/convtune";
}

std::string DefaultSocketPath() {
  if (geteuid() == 0) {
    return kSystemSocket;
  }
  const std::string runtime = AbsoluteFromEnvironment("XDG_RUNTIME_DIR");
  if (!runtime.empty()) {
    return runtime + "/convtune/convtune.sock";
  }
  return "/tmp/convtune-" + std::to_string(geteuid()) + "/convtune.sock";
}

std::vector<std::string> ClientSocketPaths() {
  std::vector<std::string> paths = {DefaultSocketPath()};
  if (paths.front() != kSystemSocket) paths.push_back(kSystemSocket);
  return paths;
}

std::string FirstSocket(const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    struct stat info {};
    const bool shared = path.rfind("/tmp/", 0) == 0;
    if (shared && !IsPrivateDirectory(path.substr(0, path.rfind('/')))) continue;
    if (stat(path.c_str(), &info) == 0 && S_ISSOCK(info.st_mode)) return path;
  }
  return paths.front();
}

std::string DefaultStateDir() {
  std::string service = ServiceStateDir();
  if (!service.empty()) return service;
  struct stat info {};
  // Who may write there without owning it, as root may, would leave files that
  // the service's own daemon cannot write.
  if (stat(kServiceDir, &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == geteuid() &&
      access(kServiceDir, W_OK) == 0) {
    return kServiceDir;
  }
  return UserStateDir();
}

bool IsPrivateDirectory(const std::string& path) {
  struct stat info {};
  return lstat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == geteuid() &&
         (info.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

std::string ProgramFolder() {
  std::error_code error;
  return fs::read_symlink("/proc/self/exe", error).parent_path();
}

std::string DefaultWorkerPath() { return ProgramFolder() + "/convtune-worker"; }

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

absl::StatusOr<std::set<std::string>> ProfileNames() {
  std::set<std::string> names;
  std::error_code error;
  const auto folders = ProfileFolders();
  for (const fs::path& folder : folders) {
    for (const fs::directory_entry& file : fs::directory_iterator(folder, error)) {
      if (file.path().extension() == ".json") names.insert(file.path().stem().string());
    }
  }
  if (!names.empty()) return names;
  return absl::FailedPreconditionError(absl::StrCat(
      "--profile: there is no profile in ", folders[0].string(), " or ", folders[1].string()));
}

}  // namespace convtune

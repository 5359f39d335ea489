#include "proto/base/default_paths.h"

#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>
#include <vector>

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

}  // namespace

std::string DefaultSocketPath() {
  if (geteuid() == 0) {
    return "/run/convtune/convtune.sock";
  }
  const std::string runtime = AbsoluteFromEnvironment("XDG_RUNTIME_DIR");
  if (!runtime.empty()) {
    return runtime + "/convtune/convtune.sock";
  }
  return "/tmp/convtune-" + std::to_string(geteuid()) + "/convtune.sock";
}

std::string DefaultStateDir() {
  // systemd separates several directories by colons; the first one is ours.
  const std::string service = AbsoluteFromEnvironment("STATE_DIRECTORY");
  if (!service.empty()) {
    return service.substr(0, service.find(':'));
  }
  constexpr char kServiceDir[] = "/var/lib/convtune";
  struct stat info {};
  if (stat(kServiceDir, &info) == 0 && S_ISDIR(info.st_mode) && access(kServiceDir, W_OK) == 0) {
    return kServiceDir;
  }
  const std::string state = AbsoluteFromEnvironment("XDG_STATE_HOME");
  return (state.empty() ? HomeDirectory() + "/.local/state" : state) + "/convtune";
}

bool IsPrivateDirectory(const std::string& path) {
  struct stat info {};
  return lstat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == geteuid() &&
         (info.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

}  // namespace convtune

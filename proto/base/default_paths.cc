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

constexpr char kSystemSocket[] = "/run/convtune/convtune.sock";
constexpr char kServiceDir[] = "/var/lib/convtune";

std::string UserStateDir() {
  const std::string state = AbsoluteFromEnvironment("XDG_STATE_HOME");
  return (state.empty() ? HomeDirectory() + "/.local/state" : state) + "/convtune";
}

// systemd separates several directories by colons; the first one is ours.
std::string ServiceStateDir() {
  const std::string service = AbsoluteFromEnvironment("STATE_DIRECTORY");
  return service.substr(0, service.find(':'));
}

}  // namespace

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

std::vector<std::string> ClientSnapshotFolders() {
  std::vector<std::string> folders;
  const std::string service = ServiceStateDir();
  if (!service.empty()) folders.push_back(service + "/snapshot");
  folders.push_back(UserStateDir() + "/snapshot");
  folders.push_back(std::string(kServiceDir) + "/snapshot");
  return folders;
}

std::string FirstFolderWith(const std::string& file, const std::vector<std::string>& folders) {
  for (const std::string& folder : folders) {
    if (access(std::string(folder).append("/").append(file).c_str(), R_OK) == 0) return folder;
  }
  for (const std::string& folder : folders) {
    if (access(folder.c_str(), X_OK) == 0) return folder;
  }
  return folders.front();
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

}  // namespace convtune

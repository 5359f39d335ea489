#include "server/rpc/http2/listen_address.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>

#include "absl/strings/str_cat.h"
#include "proto/base/default_paths.h"
#include "proto/base/status_macros.h"

namespace convtune::rpc::http2 {
namespace {

absl::Status MakeFolder(const std::string& folder) {
  struct stat info {};
  if (stat(folder.c_str(), &info) == 0) {
    if (!S_ISDIR(info.st_mode)) {
      return absl::FailedPreconditionError(absl::StrCat(folder, " is not a folder"));
    }
  } else {
    const mode_t mode = geteuid() == 0 ? 0755 : 0700;
    if (mkdir(folder.c_str(), mode) != 0 && errno != EEXIST) {
      return absl::FailedPreconditionError(
          absl::StrCat("cannot make the socket's folder ", folder, ": ", std::strerror(errno)));
    }
  }
  // In a folder that everybody can write to, another user may have been first.
  const std::string parent = std::filesystem::path(folder).parent_path();
  if (stat(parent.c_str(), &info) == 0 && (info.st_mode & S_ISVTX) != 0 &&
      !IsPrivateDirectory(folder)) {
    return absl::FailedPreconditionError(
        absl::StrCat(folder, " must be a folder of this user that nobody else can write to, for ",
                     parent, " is shared; remove it, or choose another path with --listen"));
  }
  return absl::OkStatus();
}

// True if a process listens there.
bool Answers(const sockaddr_un& address) {
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) {
    return true;
  }
  const int result =
      connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address));  // NOLINT
  const int error = result == 0 ? 0 : errno;
  close(fd);
  return error != ECONNREFUSED && error != ENOENT;
}

}  // namespace

absl::StatusOr<ListenAddress> ListenAddress::Parse(const std::string& text) {
  ListenAddress address;
  std::string rest = text;
  const size_t equals = text.find('=');
  if (equals != std::string::npos && !text.starts_with("unix:")) {
    const std::optional<Role> role = ParseRole(text.substr(0, equals));
    rest = text.substr(equals + 1);
    if (!role.has_value() || !rest.starts_with("unix:")) {
      return absl::InvalidArgumentError(absl::StrCat(
          "listen: must be unix:PATH, read=unix:PATH, tune=unix:PATH or HOST:PORT, is '", text,
          "'"));
    }
    address.role = *role;
  }
  ASSIGN_OR_RETURN(static_cast<Address&>(address), Address::Parse(rest, "listen", 0));
  return address;
}

absl::Status PrepareSocketPath(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path();
  if (!folder.empty()) {
    RETURN_IF_ERROR(MakeFolder(folder));
  }
  struct stat info {};
  if (lstat(path.c_str(), &info) != 0) {
    return absl::OkStatus();
  }
  if (!S_ISSOCK(info.st_mode)) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " exists and is not a socket; it is left alone"));
  }
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  if (Answers(address)) {
    return absl::AlreadyExistsError(absl::StrCat(
        "another process listens on ", path, "; stop it, or choose another path with --listen"));
  }
  if (unlink(path.c_str()) != 0 && errno != ENOENT) {
    return absl::FailedPreconditionError(
        absl::StrCat("cannot remove the stale socket ", path, ": ", std::strerror(errno)));
  }
  return absl::OkStatus();
}

}  // namespace convtune::rpc::http2

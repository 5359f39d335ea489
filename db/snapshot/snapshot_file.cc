#include "db/snapshot/snapshot_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

namespace convtune::snapshot {
namespace {

// False if the file ends early: it was cut short while it was read.
bool ReadAll(int fd, unsigned char* to, size_t size) {
  while (size > 0) {
    const ssize_t got = read(fd, to, size);
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got <= 0) {
      return false;
    }
    to += got;
    size -= static_cast<size_t>(got);
  }
  return true;
}

// Null unless the variable is an absolute path: the XDG base directory specification has others
// ignored.
const char* PathIn(const char* variable) {
  const char* value = getenv(variable);
  return value != nullptr && value[0] == '/' ? value : nullptr;
}

bool HasSnapshot(const SnapshotFolder& folder) {
  char path[PATH_MAX];
  const int length = snprintf(path, sizeof path, "%s/%s", folder.path, kSnapshotFile);
  return length < PATH_MAX && access(path, R_OK) == 0;
}

}  // namespace

SnapshotFile::~SnapshotFile() { free(data_); }

bool SnapshotFile::Read(const char* path, const char** reason) {
  const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) {
    *reason = errno == ENOENT   ? "no such file"
              : errno == EACCES ? "permission denied"
                                : "cannot be opened";
    return false;
  }
  struct stat info;
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode) || info.st_size <= 0) {
    close(fd);
    *reason = "not a snapshot";
    return false;
  }
  const auto size = static_cast<size_t>(info.st_size);
  data_ = malloc(size);
  const bool whole = data_ != nullptr && ReadAll(fd, static_cast<unsigned char*>(data_), size);
  close(fd);
  if (!whole) {
    *reason = "cannot be read";
    return false;
  }
  const SnapshotError error = SnapshotView::Open(data_, size, &view_);
  *reason = Describe(error);
  return error == SnapshotError::kNone;
}

SnapshotFolder FindSnapshotFolder(bool ask_for_user) {
  SnapshotFolder folders[3] = {};
  constexpr size_t kSize = sizeof folders[0].path;
  const char* service = PathIn("STATE_DIRECTORY");
  if (service != nullptr) {
    // systemd separates several directories by colons; the first one is ours.
    snprintf(folders[0].path, kSize, "%.*s/snapshot", static_cast<int>(strcspn(service, ":")),
             service);
  }
  const char* state = PathIn("XDG_STATE_HOME");
  const char* home = PathIn("HOME");
  char buffer[16384];
  passwd entry = {};
  passwd* user = nullptr;
  if (ask_for_user && state == nullptr && home == nullptr &&
      getpwuid_r(geteuid(), &entry, buffer, sizeof buffer, &user) == 0 && user != nullptr) {
    home = user->pw_dir;
  }
  if (state != nullptr) {
    snprintf(folders[1].path, kSize, "%s/convtune/snapshot", state);
  } else if (home != nullptr) {
    snprintf(folders[1].path, kSize, "%s/.local/state/convtune/snapshot", home);
  }
  snprintf(folders[2].path, kSize, "/var/lib/convtune/snapshot");
  for (const int least : {2, 1, 0}) {
    for (const SnapshotFolder& folder : folders) {
      const int there = HasSnapshot(folder) ? 2 : access(folder.path, X_OK) == 0 ? 1 : 0;
      if (folder.path[0] != '\0' && there >= least) {
        return folder;
      }
    }
  }
  return folders[2];
}

}  // namespace convtune::snapshot

#include "client/preload/state/snapshot_file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace convtune::preload::state {
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

// Null if there is no memory or the file cannot be read.
void* Bring(int fd, size_t size) {
  if (size > snapshot::kSnapshotCopyLimit) {
    void* mapped = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
    return mapped == MAP_FAILED ? nullptr : mapped;
  }
  void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return nullptr;
  }
  if (!ReadAll(fd, static_cast<unsigned char*>(memory), size)) {
    munmap(memory, size);
    return nullptr;
  }
  return memory;
}

}  // namespace

bool LoadSnapshot(const char* path, snapshot::SnapshotView* view, const char** reason) {
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
  void* data = Bring(fd, size);
  close(fd);
  if (data == nullptr) {
    *reason = "cannot be read";
    return false;
  }
  const snapshot::SnapshotError error = snapshot::SnapshotView::Open(data, size, view);
  *reason = snapshot::Describe(error);
  if (error != snapshot::SnapshotError::kNone) {
    munmap(data, size);
    return false;
  }
  return true;
}

}  // namespace convtune::preload::state

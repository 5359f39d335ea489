#include "db/snapshot/snapshot_file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
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

// Null if there is no memory or the file cannot be read.
void* Bring(int fd, size_t size) {
  if (size > kSnapshotCopyLimit) {
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

SnapshotFile::~SnapshotFile() {
  if (data_ != nullptr) {
    munmap(data_, size_);
  }
}

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
  size_ = static_cast<size_t>(info.st_size);
  data_ = Bring(fd, size_);
  close(fd);
  if (data_ == nullptr) {
    *reason = "cannot be read";
    return false;
  }
  const SnapshotError error = SnapshotView::Open(data_, size_, &view_);
  *reason = Describe(error);
  return error == SnapshotError::kNone;
}

}  // namespace convtune::snapshot

#include "server/release/snapshot_piece.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "db/snapshot/snapshot.h"

namespace convtune::release {
namespace {

constexpr int64_t kMaxSnapshotPiece = 1 << 20;

// Closes the file at the end of the scope. Not copyable.
class OpenSnapshot {
 public:
  explicit OpenSnapshot(const std::string& path) : fd_(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}
  ~OpenSnapshot() {
    if (fd_ >= 0) close(fd_);
  }
  OpenSnapshot(const OpenSnapshot&) = delete;
  OpenSnapshot& operator=(const OpenSnapshot&) = delete;

  bool is_open() const { return fd_ >= 0; }
  bool Size(int64_t* size) const {
    struct stat info {};
    if (fstat(fd_, &info) != 0) return false;
    *size = info.st_size;
    return true;
  }
  // True if all of it was read.
  bool Read(int64_t offset, void* to, size_t bytes) const {
    char* place = static_cast<char*>(to);
    while (bytes > 0) {
      const ssize_t got = pread(fd_, place, bytes, offset);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) return false;
      place += got;
      offset += got;
      bytes -= static_cast<size_t>(got);
    }
    return true;
  }

 private:
  const int fd_;
};

}  // namespace

absl::StatusOr<SnapshotPiece> ReadSnapshotPiece(const std::string& folder, int64_t offset,
                                                uint64_t version) {
  const std::string path = absl::StrCat(folder, "/", snapshot::kSnapshotFile);
  const auto cannot_be_read = [&] {
    return absl::InternalError(absl::StrCat(path, " cannot be read: ", std::strerror(errno)));
  };
  const OpenSnapshot file(path);
  if (!file.is_open() && errno == ENOENT) {
    return absl::NotFoundError("nothing was published yet");
  }
  SnapshotPiece piece;
  if (!file.is_open() || !file.Size(&piece.size_bytes)) return cannot_be_read();
  // The file is replaced by rename, so this one stays what it is.
  snapshot::SnapshotHeader header;
  errno = 0;
  if (!file.Read(0, &header, sizeof header)) return cannot_be_read();
  piece.version = header.header_checksum;
  const bool same = version == piece.version;
  if (offset > 0 && !same) {
    return absl::AbortedError("another snapshot took the place of the one that was begun");
  }
  if (offset >= piece.size_bytes || (offset == 0 && same)) return piece;
  piece.bytes.resize(std::min(kMaxSnapshotPiece, piece.size_bytes - offset));
  if (!file.Read(offset, piece.bytes.data(), piece.bytes.size())) return cannot_be_read();
  return piece;
}

}  // namespace convtune::release

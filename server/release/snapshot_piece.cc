#include "server/release/snapshot_piece.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "db/snapshot/snapshot.h"
#include "proto/base/status_macros.h"
#include "proto/base/unique_fd.h"

namespace convtune::release {
namespace {

constexpr int64_t kMaxSnapshotPiece = 1 << 20;

absl::Status CannotBeRead(const std::string& path, const std::string& why) {
  return absl::InternalError(absl::StrCat(path, " cannot be read: ", why));
}

// INTERNAL where the file ends earlier or its disk refuses.
absl::Status ReadAt(const UniqueFd& file, const std::string& path, int64_t offset, char* to,
                    size_t bytes) {
  while (bytes > 0) {
    const ssize_t got = pread(file.get(), to, bytes, offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return CannotBeRead(path, std::strerror(errno));
    if (got == 0) return CannotBeRead(path, "it is cut short");
    to += got;
    offset += got;
    bytes -= static_cast<size_t>(got);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<v1::ReadSnapshotResponse> ReadSnapshotPiece(const std::string& folder,
                                                           const v1::ReadSnapshotRequest& request) {
  const std::string path = absl::StrCat(folder, "/", snapshot::kSnapshotFile);
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat info {};
  if (!file.valid() && errno == ENOENT) {
    return absl::NotFoundError("nothing was published yet");
  }
  if (!file.valid() || fstat(file.get(), &info) != 0) {
    return CannotBeRead(path, std::strerror(errno));
  }
  v1::ReadSnapshotResponse piece;
  piece.set_size_bytes(info.st_size);
  // The file is replaced by rename, so this one stays what it is.
  snapshot::SnapshotHeader header;
  RETURN_IF_ERROR(ReadAt(file, path, 0, reinterpret_cast<char*>(&header), sizeof header));
  piece.set_version(header.header_checksum);
  const int64_t offset = request.offset();
  const bool same = request.version() == piece.version();
  if (offset > 0 && !same) {
    return absl::AbortedError("another snapshot took the place of the one that was begun");
  }
  if (offset >= piece.size_bytes() || (offset == 0 && same)) return piece;
  std::string& bytes = *piece.mutable_chunk();
  bytes.resize(std::min(kMaxSnapshotPiece, piece.size_bytes() - offset));
  RETURN_IF_ERROR(ReadAt(file, path, offset, bytes.data(), bytes.size()));
  return piece;
}

}  // namespace convtune::release

#include "server/release/publisher.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "db/snapshot/snapshot.h"
#include "proto/base/status_macros.h"

namespace convtune::release {
namespace {

constexpr int64_t kMaxSnapshotPiece = 1 << 20;

absl::Status CannotBeRead(const std::string& path, const std::string& why) {
  return absl::InternalError(absl::StrCat(path, " cannot be read: ", why));
}

// INTERNAL where the file ends earlier or its disk refuses.
absl::Status ReadAt(const std::string& path, int64_t offset, char* to, size_t bytes,
                    std::ifstream* file) {
  file->seekg(offset);
  file->read(to, static_cast<std::streamsize>(bytes));
  if (*file) return absl::OkStatus();
  return CannotBeRead(path, file->bad() ? std::strerror(errno) : "it is cut short");
}

}  // namespace

absl::StatusOr<v1::ReadSnapshotResponse> ReadSnapshotPiece(const std::string& folder,
                                                           const v1::ReadSnapshotRequest& request) {
  const std::string path = absl::StrCat(folder, "/", snapshot::kSnapshotFile);
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) {
    return errno == ENOENT ? absl::NotFoundError("nothing was published yet")
                           : CannotBeRead(path, std::strerror(errno));
  }
  v1::ReadSnapshotResponse piece;
  piece.set_size_bytes(file.tellg());
  // The file is replaced by rename, so this one stays what it is.
  snapshot::SnapshotHeader header;
  RETURN_IF_ERROR(ReadAt(path, 0, reinterpret_cast<char*>(&header), sizeof header, &file));
  piece.set_version(header.header_checksum);
  const int64_t offset = request.offset();
  const bool same = request.version() == piece.version();
  if (offset > 0 && !same) {
    return absl::AbortedError("another snapshot took the place of the one that was begun");
  }
  if (offset >= piece.size_bytes() || (offset == 0 && same)) return piece;
  std::string& bytes = *piece.mutable_chunk();
  bytes.resize(std::min(kMaxSnapshotPiece, piece.size_bytes() - offset));
  RETURN_IF_ERROR(ReadAt(path, offset, bytes.data(), bytes.size(), &file));
  return piece;
}

}  // namespace convtune::release

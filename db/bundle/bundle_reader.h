// A BundleReader reads a bundle, which may be damaged or hostile.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "convtune/v1/bundle.pb.h"
#include "db/bundle/bundle_codec.h"
#include "db/bundle/bundle_signature.h"
#include "proto/base/unique_fd.h"
#include "proto/convert/record_arena.h"

namespace convtune::db::bundle {

// A tuning as it stands in the file; not yet judged, see bundle_codec.h.
struct BundleEntry {
  int64_t offset = 0;                                 // of its record
  v1::Tuning* row = nullptr;                          // until the reader reads another
  const BundleEnvironmentRow* environment = nullptr;  // lives as long as the reader
};

// Not thread-safe. Memory: one record, the environments, and a buffer.
//
// DATA_LOSS names the first byte of the record that is damaged: its checksum,
// its length, its kind or its message is wrong, it refers to an environment
// that is not there, it is out of order, the trailer's counts or digest do not
// match, or the file goes on behind it. FAILED_PRECONDITION: a format version
// that this program does not know.
class BundleReader {
 public:
  // NOT_FOUND or INVALID_ARGUMENT where the file cannot be read as one.
  static absl::StatusOr<std::unique_ptr<BundleReader>> Open(const std::string& path);
  // Reads `fd` from its beginning, whatever its position; `name` is for
  // messages. Takes the descriptor over.
  static absl::StatusOr<std::unique_ptr<BundleReader>> FromDescriptor(int fd, std::string name);

  // The next tuning. False at the end: then the whole file was read and is as
  // it was written, and trailer() says what it holds.
  absl::StatusOr<bool> Next(BundleEntry* entry);
  // Reads to the end in place of Next(), and looks at the checksums and the trailer alone. Next()
  // of another reader may still refuse a record for its content.
  absl::Status CheckBytes();
  // The tuning at an offset that Next() gave before. Only after the end.
  absl::StatusOr<BundleEntry> ReadAt(int64_t offset);

  // Meaningful after the end.
  const v1::BundleTrailer& trailer() const { return trailer_; }
  const std::deque<BundleEnvironmentRow>& environments() const { return environments_; }
  int64_t trailer_offset() const { return trailer_offset_; }
  int64_t offset() const { return offset_; }
  // Of the file when it was opened, in bytes.
  int64_t size() const { return size_; }
  const std::string& name() const { return name_; }

 private:
  struct Record {
    int64_t offset = 0;
    BundleRecordKind kind = BundleRecordKind::kHeader;
    std::string_view message;  // this and the next until the next read
    std::string_view frame;    // all of the record's bytes
  };

  BundleReader(UniqueFd fd, std::string name, int64_t size)
      : fd_(std::move(fd)), name_(std::move(name)), size_(size) {}
  absl::Status Damaged(int64_t offset, std::string_view what) const;
  // Fills buffer_ with the bytes from `offset` on.
  absl::Status Fill(int64_t offset, size_t bytes);
  absl::StatusOr<Record> ReadRecord(int64_t offset);
  // The next environment or tuning; nullopt at the end.
  absl::StatusOr<std::optional<Record>> NextRecord();
  absl::Status ReadHeader();
  absl::Status AddEnvironment(const Record& record);
  absl::Status ReadTuning(const Record& record, BundleEntry* entry);
  absl::Status CheckTrailer(const Record& record, const std::string& digest);

  const UniqueFd fd_;
  const std::string name_;
  const int64_t size_;
  int64_t offset_ = 0;
  bool ended_ = false;
  Sha256 sha256_;
  std::string buffer_;
  int64_t buffer_offset_ = 0;
  std::deque<BundleEnvironmentRow> environments_;  // whose entries stay where they are
  std::pair<std::string, std::string> last_key_;
  int64_t environment_records_ = 0;
  int64_t tunings_ = 0;
  std::string covered_;  // what the checksum of the record that is read is computed over
  RecordArena arena_;
  v1::BundleTrailer trailer_;
  int64_t trailer_offset_ = 0;
};

// Reads all of it, calling `visit` (may be empty) for each tuning, and checks the signature; rows
// are not judged. Errors are BundleReader's and CheckBundleSignature's.
absl::Status ReadWholeBundle(BundleReader* reader, const std::vector<std::string>& trusted,
                             const std::function<void(const BundleEntry&)>& visit);

}  // namespace convtune::db::bundle

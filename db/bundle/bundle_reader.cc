#include "db/bundle/bundle_reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>

#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "google/protobuf/wire_format_lite.h"
#include "proto/base/status_macros.h"
#include "proto/base/strings.h"
#include "proto/model/environment.h"

namespace convtune::db::bundle {
namespace {

constexpr size_t kReadAhead = 1 << 20;

// Counts candidates and quarantine entries before they are made: two bytes of a
// hostile record would otherwise become an object of a hundred.
bool HasTooManyCandidates(std::string_view message) {
  using google::protobuf::internal::WireFormatLite;
  google::protobuf::io::ArrayInputStream array(message.data(), static_cast<int>(message.size()));
  google::protobuf::io::CodedInputStream input(&array);
  int count = 0;
  while (const uint32_t tag = input.ReadTag()) {
    const int field = WireFormatLite::GetTagFieldNumber(tag);
    const bool counts =
        field == v1::Tuning::kCandidatesFieldNumber || field == v1::Tuning::kQuarantineFieldNumber;
    if (counts && ++count > kMaxBundleCandidates) return true;
    if (!WireFormatLite::SkipField(&input, tag)) return false;  // the parser says what is wrong
  }
  return false;
}

template <typename Message>
bool Parse(std::string_view bytes, Message* message) {
  return message->ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
}

}  // namespace

absl::StatusOr<std::unique_ptr<BundleReader>> BundleReader::Open(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    const std::string message = Concat(path, ": cannot be opened: ", std::strerror(errno));
    return absl::InvalidArgumentError(message);
  }
  return FromDescriptor(fd, path);
}

absl::StatusOr<std::unique_ptr<BundleReader>> BundleReader::FromDescriptor(int descriptor,
                                                                           std::string name) {
  UniqueFd fd(descriptor);
  struct stat status {};
  if (fstat(fd.get(), &status) != 0 || !S_ISREG(status.st_mode)) {
    return absl::InvalidArgumentError(Concat(name, ": must be a regular file"));
  }
  std::unique_ptr<BundleReader> reader(
      new BundleReader(std::move(fd), std::move(name), static_cast<int64_t>(status.st_size)));
  RETURN_IF_ERROR(reader->ReadHeader());
  return reader;
}

absl::Status BundleReader::Damaged(int64_t offset, std::string_view what) const {
  return absl::DataLossError(Concat(name_, ": damaged at byte ", offset, ": ", what));
}

absl::Status BundleReader::Fill(int64_t offset, size_t bytes) {
  if (offset >= buffer_offset_ && offset + static_cast<int64_t>(bytes) <=
                                      buffer_offset_ + static_cast<int64_t>(buffer_.size())) {
    return absl::OkStatus();
  }
  const auto left = static_cast<size_t>(std::max<int64_t>(size_ - offset, 0));
  std::string fresh(std::min(std::max(bytes, kReadAhead), left), '\0');
  size_t filled = 0;
  while (filled < fresh.size()) {
    const ssize_t got = pread(fd_.get(), fresh.data() + filled, fresh.size() - filled,
                              static_cast<off_t>(offset) + static_cast<off_t>(filled));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      return absl::UnavailableError(Concat(name_, ": cannot be read: ", std::strerror(errno)));
    }
    if (got == 0) break;
    filled += static_cast<size_t>(got);
  }
  fresh.resize(filled);
  buffer_ = std::move(fresh);
  buffer_offset_ = offset;
  return filled < bytes ? Damaged(offset, "the file ends within a record") : absl::OkStatus();
}

absl::StatusOr<BundleReader::Record> BundleReader::ReadRecord(int64_t offset) {
  RETURN_IF_ERROR(Fill(offset, kBundleFrameHead));
  const char* head = buffer_.data() + (offset - buffer_offset_);
  const auto length = static_cast<size_t>(ReadLittleEndian(head, 4));
  const uint64_t kind = ReadLittleEndian(head + 4, 4);
  if (length > kMaxBundleRecord) {
    return Damaged(offset, Concat("a record says that it has ", length, " bytes, more than ",
                                  kMaxBundleRecord));
  }
  const size_t whole = kBundleFrameHead + length + kBundleChecksum;
  if (static_cast<int64_t>(whole) > size_ - offset) {
    return Damaged(offset, "a record goes on behind the end of the file");
  }
  RETURN_IF_ERROR(Fill(offset, whole));
  const std::string_view bytes(buffer_.data() + (offset - buffer_offset_), whole);
  covered_.clear();
  AppendLittleEndian(static_cast<uint64_t>(offset), 8, &covered_);
  covered_.append(bytes.substr(0, whole - kBundleChecksum));
  if (Checksum64(covered_) != ReadLittleEndian(bytes.data() + whole - kBundleChecksum, 8)) {
    return Damaged(offset, "the checksum of the record does not match");
  }
  if (kind < 1 || kind > 4) return Damaged(offset, Concat("records have no kind ", kind));
  return Record{offset, static_cast<BundleRecordKind>(kind), bytes.substr(kBundleFrameHead, length),
                bytes};
}

absl::Status BundleReader::ReadHeader() {
  if (size_ < static_cast<int64_t>(kBundleMagic.size()) || !Fill(0, kBundleMagic.size()).ok() ||
      std::string_view(buffer_).substr(0, kBundleMagic.size()) != kBundleMagic) {
    return Damaged(0, Concat("is no bundle, which begins with ", kBundleMagic));
  }
  offset_ = static_cast<int64_t>(kBundleMagic.size());
  sha256_.Update(kBundleMagic);
  ASSIGN_OR_RETURN(const Record record, ReadRecord(offset_));
  v1::BundleHeader header;
  if (record.kind != BundleRecordKind::kHeader || !Parse(record.message, &header)) {
    return Damaged(offset_, "the first record must be the header");
  }
  if (header.format_version() != kBundleVersion) {
    return absl::FailedPreconditionError(Concat(name_, ": has format version ",
                                                header.format_version(), "; this program reads ",
                                                kBundleVersion));
  }
  sha256_.Update(record.frame);
  offset_ += std::ssize(record.frame);
  return absl::OkStatus();
}

absl::Status BundleReader::AddEnvironment(const Record& record) {
  v1::BundleEnvironment environment;
  if (!Parse(record.message, &environment)) {
    return Damaged(record.offset, "the environment is no protobuf message");
  }
  if (environment.number() != static_cast<int>(environments_.size()) + 1 ||
      environment.number() > kMaxBundleEnvironments) {
    return Damaged(record.offset,
                   Concat("environments must be numbered from 1 to at most ",
                          kMaxBundleEnvironments, ", this one is ", environment.number()));
  }
  environments_.push_back(FromBundleEnvironment(environment));
  return absl::OkStatus();
}

absl::Status BundleReader::ReadTuning(const Record& record, BundleEntry* entry) {
  entry->offset = record.offset;
  if (HasTooManyCandidates(record.message)) {
    return Damaged(record.offset,
                   Concat("a tuning has more than ", kMaxBundleCandidates, " candidates"));
  }
  entry->row = arena_.Parse(record.message);
  if (entry->row == nullptr) {
    return Damaged(record.offset, "the tuning is no protobuf message");
  }
  const int number = entry->row->environment_number();
  if (number < 1 || static_cast<size_t>(number) > environments_.size()) {
    return Damaged(record.offset, Concat("refers to environment ", number, ", of which there are ",
                                         environments_.size()));
  }
  entry->environment = &environments_[static_cast<size_t>(number) - 1];
  return absl::OkStatus();
}

absl::Status BundleReader::CheckTrailer(const Record& record, const std::string& digest) {
  if (!Parse(record.message, &trailer_)) {
    return Damaged(record.offset, "the trailer is no protobuf message");
  }
  if (trailer_.sha256() != digest) {
    return Damaged(record.offset, "the digest does not match: a record is missing or was added");
  }
  if (trailer_.tuning_count() != tunings_ || trailer_.environment_count() != environment_records_) {
    return Damaged(record.offset, "the trailer's counts do not match");
  }
  trailer_offset_ = record.offset;
  if (offset_ != size_) return Damaged(offset_, "the file goes on behind the trailer");
  return absl::OkStatus();
}

absl::StatusOr<std::optional<BundleReader::Record>> BundleReader::NextRecord() {
  if (ended_) return std::nullopt;
  if (offset_ == size_) return Damaged(offset_, "the file ends without a trailer");
  ASSIGN_OR_RETURN(const Record record, ReadRecord(offset_));
  offset_ += std::ssize(record.frame);
  if (record.kind == BundleRecordKind::kTrailer) {
    RETURN_IF_ERROR(CheckTrailer(record, sha256_.Digest()));
    ended_ = true;
    return std::nullopt;
  }
  sha256_.Update(record.frame);
  if (record.kind == BundleRecordKind::kHeader) {
    return Damaged(record.offset, "there must be one header only");
  }
  ++(record.kind == BundleRecordKind::kTuning ? tunings_ : environment_records_);
  return record;
}

absl::Status BundleReader::CheckBytes() {
  while (true) {
    ASSIGN_OR_RETURN(const std::optional<Record> record, NextRecord());
    if (!record.has_value()) return absl::OkStatus();
  }
}

absl::StatusOr<bool> BundleReader::Next(BundleEntry* entry) {
  while (true) {
    ASSIGN_OR_RETURN(const std::optional<Record> record, NextRecord());
    if (!record.has_value()) return false;
    if (record->kind == BundleRecordKind::kEnvironment) {
      RETURN_IF_ERROR(AddEnvironment(*record));
      continue;
    }
    RETURN_IF_ERROR(ReadTuning(*record, entry));
    const std::pair<std::string_view, std::string_view> key(entry->environment->text,
                                                            entry->row->problem_text());
    if (tunings_ > 1 && key <= std::pair<std::string_view, std::string_view>(last_key_)) {
      return Damaged(record->offset, "tunings must be in order, and each key once");
    }
    last_key_.first.assign(key.first);
    last_key_.second.assign(key.second);
    return true;
  }
}

absl::StatusOr<BundleEntry> BundleReader::ReadAt(int64_t offset) {
  ASSIGN_OR_RETURN(const Record record, ReadRecord(offset));
  BundleEntry entry;
  if (record.kind != BundleRecordKind::kTuning) return Damaged(offset, "is no tuning any more");
  RETURN_IF_ERROR(ReadTuning(record, &entry));
  return entry;
}

absl::Status ReadWholeBundle(BundleReader* reader, const std::vector<std::string>& trusted,
                             const std::function<void(const BundleEntry&)>& visit) {
  BundleEntry entry;
  while (true) {
    ASSIGN_OR_RETURN(const bool more, reader->Next(&entry));
    if (!more) break;
    if (visit) visit(entry);
  }
  return CheckBundleSignature(reader->trailer(), trusted, reader->name());
}

}  // namespace convtune::db::bundle

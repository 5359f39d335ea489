#include "db/bundle/bundle_writer.h"

#include <fstream>
#include <memory>

#include "db/bundle/bundle_codec.h"
#include "db/bundle/bundle_reader.h"
#include "proto/base/status_macros.h"
#include "proto/base/strings.h"
#include "proto/convert/record_arena.h"
#include "proto/model/environment.h"

namespace convtune::db::bundle {

std::string FrameBundleRecord(int64_t offset, BundleRecordKind kind, const std::string& message) {
  std::string bytes;
  bytes.reserve(8 + kBundleFrameHead + message.size() + kBundleChecksum);
  // The checksum covers the place too, so that a record that moved is found.
  AppendLittleEndian(static_cast<uint64_t>(offset), 8, &bytes);
  AppendLittleEndian(message.size(), 4, &bytes);
  AppendLittleEndian(static_cast<uint32_t>(kind), 4, &bytes);
  bytes += message;
  AppendLittleEndian(Checksum64(bytes), 8, &bytes);
  return bytes.substr(8);
}

absl::Status SignBundle(const std::string& path, const BundleSigningKey& key) {
  ASSIGN_OR_RETURN(const std::unique_ptr<BundleReader> reader, BundleReader::Open(path));
  RETURN_IF_ERROR(ReadWholeBundle(reader.get(), {}, nullptr));
  v1::BundleTrailer trailer = reader->trailer();
  RETURN_IF_ERROR(key.Sign(&trailer));
  const int64_t offset = reader->trailer_offset();
  const std::string record =
      FrameBundleRecord(offset, BundleRecordKind::kTrailer, trailer.SerializeAsString());
  // The signed trailer is not shorter, so no byte of the old one is left.
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(offset);
  file.write(record.data(), static_cast<std::streamsize>(record.size()));
  file.close();
  return file ? absl::OkStatus()
              : absl::UnavailableError(Concat(path, ": the signature cannot be written"));
}

absl::Status BundleWriter::Emit(std::string_view bytes) {
  sha256_.Update(bytes);
  offset_ += static_cast<int64_t>(bytes.size());
  return sink_(bytes);
}

absl::Status BundleWriter::WriteRecord(BundleRecordKind kind,
                                       const google::protobuf::Message& message) {
  const std::string bytes = message.SerializeAsString();
  if (bytes.size() > kMaxBundleRecord) {
    return absl::ResourceExhaustedError(
        Concat("a record of ", bytes.size(), " bytes is more than ", kMaxBundleRecord));
  }
  return Emit(FrameBundleRecord(offset_, kind, bytes));
}

absl::Status BundleWriter::Begin() {
  if (offset_ > 0) return absl::OkStatus();
  RETURN_IF_ERROR(Emit(kBundleMagic));
  v1::BundleHeader header;
  header.set_format_version(kBundleVersion);
  header.set_producer("convtune " CONVTUNE_VERSION);
  return WriteRecord(BundleRecordKind::kHeader, header);
}

absl::Status BundleWriter::Add(const Tuning& tuning, const Environment& environment) {
  RETURN_IF_ERROR(Begin());
  const TuningKey& key = tuning.key;
  v1::BundleEnvironment place = ToBundleEnvironment(0, environment, tuning.provenance);
  if (place.text() != key.environment_text) {
    return absl::InvalidArgumentError(
        Concat("environment: must be the key's, ", key.environment_text, ", is ", place.text()));
  }
  if (trailer_.tuning_count() > 0 && !(last_key_ < key)) {
    return absl::InvalidArgumentError(
        Concat("tuning: must come after ", last_key_.problem_text, ", is ", key.problem_text));
  }
  const int next = static_cast<int>(environments_.size()) + 1;
  const int number = environments_.emplace(place.SerializeAsString(), next).first->second;
  if (number == next) {
    if (number > kMaxBundleEnvironments) {
      return absl::ResourceExhaustedError(
          Concat("more than ", kMaxBundleEnvironments, " environments and places"));
    }
    place.set_number(number);
    RETURN_IF_ERROR(WriteRecord(BundleRecordKind::kEnvironment, place));
    trailer_.set_environment_count(number);
  }
  v1::Tuning* const row = RecordArena::OfThread().New();
  FillBundleTuning(tuning, number, with_samples_, row);
  RETURN_IF_ERROR(WriteRecord(BundleRecordKind::kTuning, *row));
  trailer_.set_tuning_count(trailer_.tuning_count() + 1);
  last_key_ = key;
  return absl::OkStatus();
}

absl::Status BundleWriter::Finish() {
  RETURN_IF_ERROR(Begin());
  trailer_.set_sha256(sha256_.Digest());
  return WriteRecord(BundleRecordKind::kTrailer, trailer_);
}

}  // namespace convtune::db::bundle

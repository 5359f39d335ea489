// A BundleWriter writes a bundle, record by record.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "convtune/v1/bundle.pb.h"
#include "db/bundle/bundle_codec.h"
#include "db/bundle/bundle_signature.h"
#include "google/protobuf/message.h"
#include "proto/model/tuning/tuning.h"

namespace convtune::db::bundle {

// Not thread-safe. The same tunings give the same bytes. After an error of the
// sink nothing more may be written.
class BundleWriter {
 public:
  // Takes the next bytes of the file; an error ends the writing.
  using Sink = std::function<absl::Status(std::string_view)>;

  explicit BundleWriter(Sink sink, bool with_samples = true)
      : sink_(std::move(sink)), with_samples_(with_samples) {}

  // `environment` is the key's, with the full GPU model. INVALID_ARGUMENT if it
  // is not, or if the key does not come after the last one's in the order of
  // (environment text, problem text); RESOURCE_EXHAUSTED: the tuning is longer
  // than a record may be.
  absl::Status Add(const Tuning& tuning, const Environment& environment);
  // Writes the trailer, which SignBundle may sign. Nothing may be added afterwards.
  absl::Status Finish();

  int64_t tunings() const { return trailer_.tuning_count(); }

 private:
  absl::Status Begin();
  absl::Status WriteRecord(BundleRecordKind kind, const google::protobuf::Message& message);
  absl::Status Emit(std::string_view bytes);

  const Sink sink_;
  const bool with_samples_;
  Sha256 sha256_;
  int64_t offset_ = 0;
  v1::BundleTrailer trailer_;
  std::map<std::string, int> environments_;  // numbers by the records, serialised without them
  TuningKey last_key_;
};

// Replaces the trailer of a finished bundle by a signed one. Reads all of it
// first, so that only what is sound is signed; DATA_LOSS as BundleReader.
absl::Status SignBundle(const std::string& path, const BundleSigningKey& key);

// A record as it stands in the file at `offset`.
std::string FrameBundleRecord(int64_t offset, BundleRecordKind kind, const std::string& message);

}  // namespace convtune::db::bundle

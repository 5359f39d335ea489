// Bundles for tests.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "db/bundle/bundle_codec.h"
#include "db/bundle/bundle_reader.h"
#include "db/bundle/bundle_writer.h"
#include "tests/unit/db/test_folder.h"
#include "tests/unit/db/valid_tunings.h"

namespace convtune::db::bundle {

inline const absl::Time kNow = absl::FromUnixSeconds(1'767'225'600);

// SampleTuning(n) of a problem that there can be.
inline Tuning ValidTuning(int n) {
  Tuning tuning = SampleTuning(n);
  tuning.key = ValidSampleTuning(1000 + n).key;  // so that text order is number order
  return tuning;
}

// A bundle of these tunings, which are in order and of SampleEnvironment().
inline std::string BundleOf(const std::vector<Tuning>& tunings, bool with_samples = true) {
  std::string bytes;
  BundleWriter writer(
      [&bytes](std::string_view piece) {
        bytes += piece;
        return absl::OkStatus();
      },
      with_samples);
  for (const Tuning& tuning : tunings) {
    const absl::Status status = writer.Add(tuning, SampleEnvironment());
    EXPECT_TRUE(status.ok()) << status;
  }
  const absl::Status status = writer.Finish();
  EXPECT_TRUE(status.ok()) << status;
  return bytes;
}

inline std::vector<Tuning> SampleTunings(int count) {
  std::vector<Tuning> tunings;
  for (int n = 1; n <= count; ++n) tunings.push_back(ValidTuning(n));
  return tunings;
}

// Header, environment, these rows and a trailer that fits them: what only
// somebody who means it would write.
inline std::string BundleOfRows(const std::vector<v1::Tuning>& rows,
                                const v1::BundleEnvironment& environment) {
  std::string bytes(kBundleMagic);
  const auto add = [&bytes](BundleRecordKind kind, const google::protobuf::Message& message) {
    bytes +=
        FrameBundleRecord(static_cast<int64_t>(bytes.size()), kind, message.SerializeAsString());
  };
  v1::BundleHeader header;
  header.set_format_version(kBundleVersion);
  add(BundleRecordKind::kHeader, header);
  add(BundleRecordKind::kEnvironment, environment);
  for (const v1::Tuning& row : rows) add(BundleRecordKind::kTuning, row);
  Sha256 sha256;
  sha256.Update(bytes);
  v1::BundleTrailer trailer;
  trailer.set_environment_count(1);
  trailer.set_tuning_count(static_cast<int64_t>(rows.size()));
  trailer.set_sha256(sha256.Digest());
  add(BundleRecordKind::kTrailer, trailer);
  return bytes;
}

inline v1::BundleEnvironment SampleBundleEnvironment() {
  return ToBundleEnvironment(1, SampleEnvironment(), ValidTuning(1).provenance);
}

// Its row.
inline v1::Tuning SampleRow(int n) { return ToBundleTuning(ValidTuning(n), 1, true); }

// Reads all of it; the rows as they are.
inline absl::Status ReadAll(const std::string& bytes, std::vector<v1::Tuning>* rows = nullptr,
                            const std::vector<std::string>& trusted = {}) {
  static const TestFolder folder;  // thousands of bundles are read
  WriteWholeFile(folder.File("b"), bytes);
  auto reader = BundleReader::Open(folder.File("b"));
  if (!reader.ok()) return reader.status();
  return ReadWholeBundle(reader->get(), trusted, [&](const BundleEntry& entry) {
    if (rows != nullptr) rows->push_back(*entry.row);
  });
}

// As it comes back from a bundle.
inline Tuning Imported(Tuning tuning) {
  tuning.origin = Origin::kImported;
  return tuning;
}

}  // namespace convtune::db::bundle

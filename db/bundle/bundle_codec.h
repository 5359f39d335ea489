// The framing of a bundle's records (README.md), and tunings and environments to and from its rows,
// with every rule that a row has to keep.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "convtune/v1/bundle.pb.h"
#include "convtune/v1/bundle_service.pb.h"
#include "proto/model/environment.h"
#include "proto/model/tuning/tuning.h"

namespace convtune::db::bundle {

inline constexpr std::string_view kBundleMagic = "CVTNBNDL";
inline constexpr int kBundleVersion = 1;

// A record's kind is part of its frame.
enum class BundleRecordKind : uint32_t {
  kHeader = 1,       // v1.BundleHeader
  kEnvironment = 2,  // v1.BundleEnvironment
  kTuning = 3,       // v1.Tuning
  kTrailer = 4,      // v1.BundleTrailer
};

// Before the message: its length and its kind, 4 bytes each; behind it: 8 bytes
// of checksum. All numbers are little-endian.
inline constexpr size_t kBundleFrameHead = 8;
inline constexpr size_t kBundleChecksum = 8;

// No record is longer, so that a damaged length costs no more memory.
inline constexpr size_t kMaxBundleRecord = 16 << 20;
inline constexpr int kMaxBundleEnvironments = 100'000;
inline constexpr int kMaxBundleCandidates = 100'000;  // of one tuning

// A bundle's environment, with the place of its measurements. Value type.
struct BundleEnvironmentRow {
  std::string text;         // of the key, as in the file
  Environment environment;  // with the full GPU model; meaningful if `status` is OK
  Provenance provenance;
  absl::Status status;  // not OK: ViolationIn it is the first rule that is broken
};

v1::BundleEnvironment ToBundleEnvironment(int number, const Environment& environment,
                                          const Provenance& provenance);
// Judges every field.
BundleEnvironmentRow FromBundleEnvironment(const v1::BundleEnvironment& proto);

// `environment` is the number of its record.
v1::Tuning ToBundleTuning(const Tuning& tuning, int environment, bool with_samples);
// The same into `row`, which is empty and may live on an arena.
void FillBundleTuning(const Tuning& tuning, int environment, bool with_samples, v1::Tuning* row);

// The tuning, with origin IMPORTED. INVALID_ARGUMENT names the field and the rule that the row
// breaks (ViolationIn), and why that matters (RefusalReasonOf). Judges a row by itself: `now` is
// what its times are held against. Pure function.
absl::StatusOr<Tuning> FromBundleTuning(const v1::Tuning& row,
                                        const BundleEnvironmentRow& environment, absl::Time now);
// `status` is FromBundleTuning's; UNSPECIFIED: it is OK.
v1::RefusalReason RefusalReasonOf(const absl::Status& status);

}  // namespace convtune::db::bundle

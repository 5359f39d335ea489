// Tunings to and from a bundle's rows, with every rule that a row has to keep.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "convtune/v1/bundle.pb.h"
#include "convtune/v1/bundle_service.pb.h"
#include "db/bundle/bundle_environment.h"
#include "proto/model/tuning/tuning.h"
#include "proto/model/violation.h"

namespace convtune::db::bundle {

// A rule that a row breaks.
struct BundleRefusal {
  v1::RefusalReason reason = v1::REFUSAL_REASON_UNSPECIFIED;
  Violation violation;
};

// `environment` is the number of its record.
v1::Tuning ToBundleTuning(const Tuning& tuning, int environment, bool with_samples);
// The same into `row`, which is empty and may live on an arena.
void FillBundleTuning(const Tuning& tuning, int environment, bool with_samples, v1::Tuning* row);

// The tuning, with origin IMPORTED; or nullopt and at least one refusal, at
// most 20. Judges a row by itself: `now` is what its times are held against.
// Pure function.
std::optional<Tuning> FromBundleTuning(const v1::Tuning& row,
                                       const BundleEnvironmentRow& environment, absl::Time now,
                                       std::vector<BundleRefusal>* refusals);

}  // namespace convtune::db::bundle

// Conversions of a bundle's environments, each with the place of its measurements.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "convtune/v1/bundle.pb.h"
#include "proto/model/environment.h"

namespace convtune::db::bundle {

// Value type.
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

}  // namespace convtune::db::bundle

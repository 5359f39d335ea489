// The state of the GPU to and from a bundle's row.
#pragma once

#include <optional>

#include "convtune/v1/bundle.pb.h"
#include "proto/model/tuning/conditions.h"
#include "proto/model/violation.h"

namespace convtune::db {

// `conditions` must be known.
v1::BundleConditions ToBundleConditions(const Conditions& conditions);
// Known conditions, or the first rule that they break; fields are named from
// the tuning on.
std::optional<Violation> FromBundleConditions(const v1::BundleConditions& row,
                                              Conditions* conditions);

}  // namespace convtune::db

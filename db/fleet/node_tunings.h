// Functions that read what one node measured, as it delivered it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "db/postgres/connection.h"
#include "proto/model/environment.h"
#include "proto/model/tuning/tuning.h"

namespace convtune::db::fleet {

struct NumberedNode {
  int64_t id = 0;
  std::string name;
};
// Nodes with current evidence, by name.
absl::StatusOr<std::vector<NumberedNode>> ListMeasuringNodes(postgres::Connection& postgres);

// Calls `take` with each current tuning of the node, ordered by (environment text,
// problem text) as a bundle has them; its provenance names the node. Rows that break a
// rule are left out. An error of `take` ends it.
absl::Status ReadNodeTunings(
    postgres::Connection& postgres, const NumberedNode& node,
    const std::function<absl::Status(const Tuning&, const Environment&)>& take);

}  // namespace convtune::db::fleet

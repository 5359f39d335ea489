// Functions that make, read and delete one node's deliveries, key by key. Deliveries are
// written by db/fleet/evidence.h.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "convtune/v1/fleet_service.pb.h"
#include "db/fleet/names.h"
#include "db/postgres/connection.h"
#include "proto/model/tuning/tuning.h"

namespace convtune::db::fleet {

// A row of a node's outbox.
struct FleetDelivery {
  int64_t epoch = 77;
  int64_t sequence = 0;
  Tuning tuning;  // its samples are left out
  Environment environment;
};
std::vector<v1::OutboxRow> OutboxRows(const std::vector<FleetDelivery>& deliveries);

// The node's current tuning of the key, without samples and provenance. NOT_FOUND
// if there is none; DATA_LOSS: the row breaks a rule.
absl::StatusOr<Tuning> GetDelivered(postgres::Connection& postgres, int64_t node_id,
                                    const TuningKey& key);

// Every current tuning of the node, in the order of (environment text, problem
// text). A row that breaks a rule is passed to `corrupt` as text and left out.
// The callbacks must not use the connection.
absl::Status ForEachDelivered(postgres::Connection& postgres, int64_t node_id,
                              const std::function<void(Tuning)>& visit,
                              const std::function<void(const std::string&)>& corrupt);

// Forgets all that the node ever delivered of these keys, in one transaction, and
// has them pooled anew. What was released stays released. Returns how many of the
// keys had a current tuning.
absl::StatusOr<int64_t> ForgetDelivered(postgres::Connection& postgres, int64_t node_id,
                                        const std::vector<TuningKey>& keys);

}  // namespace convtune::db::fleet

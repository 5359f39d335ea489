// Functions that keep the fleet's bans: rules that hold on every node. The table is in
// db/fleet/migrations/README.md.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "db/fleet/releases.h"
#include "db/postgres/connection.h"
#include "proto/model/tuning/ban.h"
#include "proto/model/tuning/tuning.h"

namespace convtune::db::fleet {

// At most so many hold at a time. A daemon takes 1,000, its own included.
inline constexpr size_t kMostFleetBans = 500;

struct FleetBan {
  Ban ban;                             // its fleet_ban is its number here; times are the server's
  std::optional<absl::Duration> left;  // by the server's clock; nullopt: until it is ended
  std::string login;                   // the database's user
  // Why nodes refuse the ban: CheckDecision's text, or this program cannot read the rule, which a
  // later version may have written. Empty: they take it.
  std::string error;
};

// Returns the number that the ban has from now on. The numbers and times of `ban` are not read.
// ALREADY_EXISTS, RESOURCE_EXHAUSTED as Bans::CheckIsNew.
absl::StatusOr<int64_t> PutFleetBan(postgres::Connection& postgres, const Ban& ban,
                                    std::optional<absl::Duration> left,
                                    const DecisionKey& key = nullptr);
// NOT_FOUND if no ban of that number holds.
absl::Status EndFleetBan(postgres::Connection& postgres, int64_t fleet_ban,
                         const std::string& author);
// Of the bans, or pins, of these numbers: FAILED_PRECONDITION says who ended one, that it has
// expired, or that the database does not have it. `kind` is "ban" or "pin".
absl::Status CheckDecisionsHold(postgres::Connection& postgres, const std::string& kind,
                                const std::vector<int64_t>& numbers);
// The active ones, by number; `trusted` as of CheckDecision.
absl::StatusOr<std::vector<FleetBan>> ListFleetBans(postgres::Connection& postgres,
                                                    const std::vector<std::string>& trusted = {});
// Of these, those that this program can read.
Bans ReadableBans(const std::vector<FleetBan>& bans);
// Those that this program can read, and those that came with convtune: what a node of this version
// heeds, unless its daemon was started with --no-errata.
Bans HeededBans(const std::vector<FleetBan>& bans);

// Calls `visit` for each pooled tuning, by environment and problem, that lists a candidate
// which ran and which the ban fits. The second argument is the fleet's pin of the problem,
// or nullptr.
absl::Status ForEachUnderBan(postgres::Connection& postgres, const Ban& ban,
                             const std::function<void(const Tuning&, const Pin*)>& visit);

}  // namespace convtune::db::fleet

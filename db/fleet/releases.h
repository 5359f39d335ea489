// Functions that make and read the fleet's releases: numbered sets of pooled tunings,
// and pins. The tables are in db/fleet/migrations/README.md; server/fleet/README.md
// says what a release means.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "db/fleet/names.h"
#include "db/fleet/postgres.h"
#include "proto/model/release/release_history.h"

namespace convtune::db::fleet {

// The channel on which releases, pins and new tasks are announced.
inline constexpr char kFleetChannel[] = "convtune_fleet";

struct FleetRelease {
  Release release;
  int64_t change_count = 0;
  int64_t node_count = 0;  // that serve it now
};

// A problem that two releases differ in. An empty candidate: no choice.
struct FleetChange {
  std::string environment_text;
  std::string problem_text;
  std::string before;
  std::string after;
  std::optional<double> before_us;  // as it was known then
  std::optional<double> after_us;
  int64_t node_count = 0;  // whose evidence is behind `after`
};

struct FleetDiff {
  int64_t change_count = 0;
  std::vector<FleetChange> changes;  // the first ones, by environment and problem
};

// ReleaseHistory decides which releases may follow. Writers take a lock until they commit, so that
// whoever sees release N also sees all below it: numbers never become visible out of order. Nobody
// promotes what is not pooled; see PoolQueued.
//
// Promotes what changed: problems without a choice, choices that are slower
// beyond noise than what is best known (pooled intervals that do not overlap),
// and those whose evidence is better now. With `all`, also tunings whose numbers
// alone changed. While a canary runs: promotes it, or changes its share.
// FAILED_PRECONDITION: there is nothing to promote.
absl::StatusOr<FleetRelease> PromoteFleetRelease(Postgres& postgres, const std::string& author,
                                                 const std::string& reason, int canary_permille,
                                                 bool all);
// Takes the canary back; else a new release with the choices of `to` (0: of the
// release promoted before). NOT_FOUND, FAILED_PRECONDITION: none to go back to.
absl::StatusOr<FleetRelease> RollBackFleetRelease(Postgres& postgres, const std::string& author,
                                                  const std::string& reason, int64_t to);
// Newest first.
absl::StatusOr<std::vector<FleetRelease>> ListFleetReleases(Postgres& postgres);
// What a promotion would bring.
absl::StatusOr<FleetDiff> DiffPooled(Postgres& postgres, bool all, int64_t limit);
absl::StatusOr<FleetDiff> DiffFleetReleases(Postgres& postgres, int64_t from, int64_t to,
                                            int64_t limit);
// Of the releases, those that are served: promoted() and canary() of the fleet.
absl::StatusOr<ReleaseHistory> ReadServedReleases(Postgres& postgres);

// A released tuning: convtune.v1.Tuning, whose environment_number is 1.
struct ReleasedTuning {
  int64_t environment_id = 0;
  std::string payload;
};

// What a node that serves release `from` needs to serve `to`: every choice of
// `to` in these environments that may differ. Calls `page` with up to
// `page_size` at a time.
absl::Status ReadReleaseChanges(
    Postgres& postgres, const std::vector<int64_t>& environments, int64_t from, int64_t to,
    int64_t page_size, const std::function<absl::Status(std::vector<ReleasedTuning>)>& page);
// Those of these problems that `release` has, likewise.
absl::StatusOr<std::vector<ReleasedTuning>> ReadReleaseChoices(
    Postgres& postgres, int64_t environment_id, const std::vector<std::string>& problems,
    int64_t release);

struct FleetPin {
  int64_t pin_id = 0;
  int64_t environment_id = 0;
  std::string environment_text;
  std::string problem_text;
  std::string candidate;
  std::string author;
  std::string reason;
  std::optional<absl::Duration> left;  // by the server's clock; nullopt: until it is ended
};

// Replaces one of the same key. INVALID_ARGUMENT: no such environment is known.
absl::StatusOr<int64_t> PutFleetPin(Postgres& postgres, FleetNames& names,
                                    const std::string& environment_text,
                                    const std::string& problem_text, const std::string& candidate,
                                    const std::string& author, const std::string& reason,
                                    std::optional<absl::Duration> ttl);
// NOT_FOUND if there is none.
absl::Status EndFleetPin(Postgres& postgres, const std::string& environment_text,
                         const std::string& problem_text, const std::string& author);
// The active ones, by pin_id; of all environments where the list is empty.
absl::StatusOr<std::vector<FleetPin>> ListFleetPins(Postgres& postgres,
                                                    const std::vector<int64_t>& environments);
// The text of the environment that is called so, by name or text.
// INVALID_ARGUMENT: several are; NOT_FOUND.
absl::StatusOr<std::string> ResolveFleetEnvironment(Postgres& postgres, const std::string& name);

}  // namespace convtune::db::fleet

// Functions that make and read the fleet's releases: numbered sets of pooled tunings,
// and pins. The tables are in db/fleet/migrations/README.md; client/fleet/README.md
// says what a release means.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "db/bundle/bundle_signature.h"
#include "db/fleet/names.h"
#include "db/postgres/connection.h"
#include "proto/model/enums.h"
#include "proto/model/release/release.h"

namespace convtune::db::fleet {

// The channel on which releases, pins, bans and new tasks are announced.
inline constexpr char kFleetChannel[] = "convtune_fleet";
// Tells all who listen on kFleetChannel, when the transaction commits, that there is news of
// `what`. Errors are the database's.
absl::Status Announce(postgres::Connection& postgres, const std::string& what);

// A release, a pin and a ban have a digest of their content, by the program of whoever decided
// them. This is what is wrong with one that has another content.
inline constexpr char kWrongDigest[] =
    "its content does not match its digest: it was changed after it was decided";
// The key of whoever decides on a release, a pin or a ban; nullptr: the decision is not signed.
using DecisionKey = std::shared_ptr<const bundle::BundleSigningKey>;
// A FleetDecision says who decides on a release, and why. Value type.
struct FleetDecision {
  std::string author;
  std::string reason;
  DecisionKey key;
};
// The columns digest, public_key and signature of a decision, as parameters; the last two are empty
// without a key.
absl::StatusOr<postgres::Params> SignDecision(const std::string& digest, const DecisionKey& key);
// What is wrong with a decision of that content, whose digest, public_key and signature are in the
// row from that column on; empty: nothing. With `trusted` (32 bytes each) not empty one of these
// keys must have signed it.
std::string CheckDecision(const std::string& digest, const postgres::Row& row, int column,
                          const std::vector<std::string>& trusted);
// The text of a time in a digest; empty for none.
std::string DigestTime(std::optional<absl::Time> time);
// The end, by the server's clock, of a decision that is made in this transaction for `left`.
absl::StatusOr<std::optional<absl::Time>> ExpireTime(postgres::Connection& postgres,
                                                     std::optional<absl::Duration> left);

struct FleetRelease {
  Release release;
  int64_t change_count = 0;
  int64_t node_count = 0;   // that serve it now
  bool withdrawal = false;  // it takes choices away, and brings none
  // Names of the nodes that were drawn for it as a canary, which is part of the decision.
  std::vector<std::string> canary_nodes;
  std::vector<std::string> silent_canary_nodes;  // those that do not live now, while it runs
  int64_t silent_count = 0;  // of PromoteFleetRelease: nodes that the draw left out as silent
  // Of RollBackFleetRelease, what the operator may not expect: problems without a choice in the
  // release gone back to, which keep theirs; and choices that were withdrawn since, which are
  // served again.
  int64_t kept_count = 0;
  int64_t returned_count = 0;
  // The database's users who made and ended it.
  std::string login;
  std::string end_login;
};

// A problem that two releases differ in. An empty candidate: no choice.
struct FleetChange {
  std::string environment_text;
  std::string problem_text;
  std::string before;
  std::string after;
  std::optional<double> before_us;  // as it was known then
  std::optional<double> after_us;
  int64_t node_count = 0;  // that find `after` the best within noise
  // More than node_count: the change is held back until so many do. 0: it is not.
  int64_t nodes_wanted = 0;
};

struct FleetDiff {
  int64_t change_count = 0;
  // Changes that DiffPooled leaves out, which have less evidence than its scope wants; and of the
  // rest those that fewer nodes agree with.
  int64_t lesser_count = 0;
  int64_t held_count = 0;
  // The first ones, by environment and problem; behind them what is held back.
  std::vector<FleetChange> changes;
};

// A PromotionScope selects the changes that a promotion takes.
struct PromotionScope {
  bool all = false;                             // also those of numbers alone
  Evidence min_evidence = Evidence::kMeasured;  // what is known of less is left out
  int64_t min_nodes = 0;  // that find it the best; 0: as the environment wants, see kNodesWantedSql
};

// "23 changes whose evidence is less than measured (--min-evidence)", and what is held back; empty:
// nothing is left out.
std::string LeftOut(const FleetDiff& diff, const PromotionScope& scope);

// A SeenRelease is what NewestServed was when somebody looked.
struct SeenRelease {
  int64_t number = 0;
  std::optional<bool> is_canary;  // nullopt: not known, and not compared
};

// ReleaseHistory decides which releases may follow. Writers take a lock until they commit, so that
// whoever sees release N also sees all below it: numbers never become visible out of order. Nobody
// promotes what is not pooled; see PoolQueued.
//
// Promotes what changed: problems without a choice, choices that are slower
// beyond noise than what is best known (pooled intervals that do not overlap),
// and those whose evidence is better now. While a canary runs: promotes it, or changes its share.
// A canary's nodes are drawn here, among the living ones of each environment that it changes.
// FAILED_PRECONDITION: there is nothing to promote, `from` is not what is served now, the canary
// is signed and the decision is not, or all nodes of an environment that it changes are silent.
// DATA_LOSS: the canary, or what is served, is not what was decided; see CheckServed.
absl::StatusOr<FleetRelease> PromoteFleetRelease(postgres::Connection& postgres,
                                                 const FleetDecision& decision, int canary_permille,
                                                 const PromotionScope& scope,
                                                 std::optional<SeenRelease> from = std::nullopt);
// A new release without a choice for these problems of the environment; where
// `problems` is empty, for all that are served there. They stay without one until
// another candidate wins, or a promotion of `all`. NOT_FOUND: a problem is not
// served; FAILED_PRECONDITION: a canary runs.
absl::StatusOr<FleetRelease> WithdrawFleetChoices(postgres::Connection& postgres,
                                                  const FleetDecision& decision,
                                                  const std::string& environment_text,
                                                  const std::vector<std::string>& problems);
// Rolls the canary back; else a new release with the choices of `to` (0: of the
// release promoted before). NOT_FOUND, FAILED_PRECONDITION: none to go back to, or as above.
// DATA_LOSS: a release whose choices it would take is not what was decided.
absl::StatusOr<FleetRelease> RollBackFleetRelease(postgres::Connection& postgres,
                                                  const FleetDecision& decision, int64_t to,
                                                  std::optional<SeenRelease> from = std::nullopt);
// OK while nobody has taken back the decision that made the release what `made` is.
// FAILED_PRECONDITION says who did: who rolled this canary back, or went back to an earlier
// release. NOT_FOUND.
absl::Status CheckReleaseStands(postgres::Connection& postgres, const Release& made);
// Without node_count and withdrawal. NOT_FOUND.
absl::StatusOr<FleetRelease> ReadFleetRelease(postgres::Connection& postgres, int64_t number);
// Newest first.
absl::StatusOr<std::vector<FleetRelease>> ListFleetReleases(postgres::Connection& postgres);
struct ServedChoice {
  std::string environment_text;
  std::string problem_text;
  std::string candidate;
  int64_t release = 0;  // that it came with
};
// The choices of the promoted release and the canary that rest on nodes of that name alone: no
// other node that is trusted has measured the problem with evidence as good as the choice's.
absl::StatusOr<std::vector<ServedChoice>> ListChoicesOf(postgres::Connection& postgres,
                                                        const std::string& node);
// Returns the changes that a promotion would bring.
absl::StatusOr<FleetDiff> DiffPooled(postgres::Connection& postgres, const PromotionScope& scope,
                                     int64_t limit);
absl::StatusOr<FleetDiff> DiffFleetReleases(postgres::Connection& postgres, int64_t from,
                                            int64_t to, int64_t limit);
// Checks the releases that the choices of release `newest` come from; with `also_empty`, also that
// one, where no choice comes from it. DATA_LOSS names those that are not what was decided, for
// which nodes refuse `newest`, and says what to do.
absl::Status CheckServed(postgres::Connection& postgres, int64_t newest, bool also_empty = true);
// Of the releases, those that are served: promoted() and canary() of the fleet.
absl::StatusOr<ReleaseHistory> ReadServedReleases(postgres::Connection& postgres);
// The number of the canary, or else of the promoted release; 0: nothing is served.
int64_t NewestServed(const ReleaseHistory& served);

// When it was made, by the server's clock; InfinitePast: there is no such release.
absl::StatusOr<absl::Time> ReadReleaseTime(postgres::Connection& postgres, int64_t release);
// The problems that have a choice in the release.
absl::StatusOr<std::set<std::string>> ReadReleaseProblems(postgres::Connection& postgres,
                                                          const std::string& environment_text,
                                                          int64_t release);

// A released tuning: convtune.v1.Tuning, whose environment_number is 1. Without
// a payload: the problem's choice was withdrawn, or was one of a canary that was rolled back.
struct ReleasedTuning {
  std::string environment_text;
  std::string problem_text;
  std::string payload;
};

// CheckedReleases compares what is read of releases with the digests of those who decided
// them: a release's is of its choices, and a choice's of its tuning. Remembers the choices of
// releases that matched. Not thread-safe.
class CheckedReleases {
 public:
  // With `trusted` as of CheckDecision.
  explicit CheckedReleases(std::vector<std::string> trusted = {}) : trusted_(std::move(trusted)) {}

  // DATA_LOSS: the release, as it is now, is not what was decided.
  absl::Status Check(postgres::Connection& postgres, int64_t release);
  // The tunings of rows with the columns environment's text, problem's text, release_number (NULL:
  // no release has the problem), digest and payload. DATA_LOSS: as Check, or a payload does not
  // match its digest.
  absl::StatusOr<std::vector<ReleasedTuning>> Take(postgres::Connection& postgres,
                                                   const postgres::Result& rows);

 private:
  const std::vector<std::string> trusted_;
  std::set<std::string> choices_;  // digests of release, environment, problem and digest
};
// Signs every release as it is, and returns how many there are. DATA_LOSS, and nothing is signed:
// one is not what was decided.
absl::StatusOr<int64_t> SignReleases(postgres::Connection& postgres, const DecisionKey& key);
// Writes the digest of what the release holds now, for whoever decided it.
absl::Status WriteReleaseDigest(postgres::Connection& postgres, int64_t release,
                                const DecisionKey& key);

// Calls `page` with the choices that bring a node from release `from` to release `to`:
// every choice of `to` (0: nothing) in these environments that may differ from that of `from`. A
// page has up to `page_size` choices. Nothing is given of what `checked` refuses: all is read
// once before, with DATA_LOSS. ABORTED as CheckFleet: the releases are others now.
absl::Status ReadReleaseChanges(
    postgres::Connection& postgres, FleetNames& names, CheckedReleases& checked,
    const std::vector<std::string>& environments, int64_t from, int64_t to, int page_size,
    const std::function<absl::Status(std::vector<ReleasedTuning>)>& page);
// The choices of these problems in the release, without those that were withdrawn. DATA_LOSS:
// `checked` refuses one.
absl::StatusOr<std::vector<ReleasedTuning>> ReadReleaseChoices(
    postgres::Connection& postgres, CheckedReleases& checked, const std::string& environment_text,
    const std::vector<std::string>& problems, int64_t release);

struct FleetPin {
  int64_t pin_id = 0;
  std::string environment_text;
  std::string problem_text;
  std::string candidate;
  std::string author;
  std::string reason;
  std::string login;                   // the database's user
  std::optional<absl::Duration> left;  // by the server's clock; nullopt: until it is ended
  std::string error;                   // of CheckDecision
};

// Replaces one of the same key, and returns its number; `pin` has the texts and `left`. NOT_FOUND:
// the fleet has pooled nothing of the problem there; FAILED_PRECONDITION: the candidate did not
// run, or is not known.
absl::StatusOr<int64_t> PutFleetPin(postgres::Connection& postgres, FleetNames& names,
                                    const FleetPin& pin, const DecisionKey& key = nullptr);
// NOT_FOUND if there is none.
absl::Status EndFleetPin(postgres::Connection& postgres, const std::string& environment_text,
                         const std::string& problem_text, const std::string& author);
// The active ones, by pin_id.
absl::StatusOr<std::vector<FleetPin>> ListFleetPins(postgres::Connection& postgres,
                                                    const std::vector<std::string>& trusted = {});
// The text of the environment that is called so, by name or text.
// INVALID_ARGUMENT: several are; NOT_FOUND.
absl::StatusOr<std::string> ResolveFleetEnvironment(postgres::Connection& postgres,
                                                    const std::string& name);

}  // namespace convtune::db::fleet

// Judge holds an answer against what its caller demands, BetterWork says which tuning would
// give more, and Decide what a look-up gives. Pure functions.
#pragma once

#include <optional>

#include "absl/time/time.h"
#include "server/jobs/work_spec.h"
#include "server/lookup/lookup_request.h"
#include "server/lookup/tuning_index.h"

namespace convtune::lookup {

// The evidence that counts as a hit: what is demanded, else the default of on_miss. The
// device of a profile can time nothing, so HEURISTIC is its default. `profile`: the environment is
// one.
Evidence LeastEvidence(const jobs::Demand& demand, bool profile);

// The reason why the caller's demand refuses an answer of `tuning`; nullopt: the demand accepts it.
// `now` is read only where the demand limits the age.
std::optional<v1::MissReason> Judge(const v1::Answer& answer, const KeptTuning& tuning,
                                    const jobs::Demand& demand, bool profile, absl::Time now);

// The tuning that would give more than what is known; nullopt: none is wanted, or none would.
std::optional<jobs::WorkKind> BetterWork(const IndexHit& known, const jobs::Demand& demand,
                                         bool profile, absl::Time now);

struct LookupDecision {
  v1::BatchGetResult row;  // see MakeAnswer
  // The work that on_miss asks for; nullopt for an answer, and where no work
  // would help.
  std::optional<jobs::WorkKind> work;
  // The outcome may be another at another time, though nothing else has changed.
  bool depends_on_time = false;
};

// Ages are as of `asked`, when the caller asked: what was tuned since is new enough,
// however long the caller waited.
LookupDecision Decide(const IndexHit& known, const ConvProblem& problem, const jobs::Demand& demand,
                      bool profile, absl::Time asked, absl::Time now);

}  // namespace convtune::lookup

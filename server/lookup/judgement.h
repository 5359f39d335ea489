// Decide says what a look-up gives, and BetterWork which tuning would give more. Pure functions.
#pragma once

#include <optional>

#include "absl/time/time.h"
#include "convtune/v1/tuning_service.pb.h"
#include "proto/model/problem/conv_problem.h"
#include "server/jobs/work_spec.h"
#include "server/lookup/tuning_index.h"

namespace convtune::lookup {

// The tuning that would give more than what is known; nullopt: none is wanted, or none would.
// `profile`: the environment is one of a profile.
std::optional<jobs::WorkKind> BetterWork(const IndexHit& known, const jobs::Demand& demand,
                                         bool profile, absl::Time now);

struct LookupDecision {
  v1::BatchGetResult row;  // see MakeAnswer
  // The work that on_miss asks for; nullopt for an answer, and where no work
  // would help.
  std::optional<jobs::WorkKind> work;
  // At another time the decision may be another one, though nothing else has changed.
  bool depends_on_time = false;
};

// Ages are as of `asked`, when the caller asked: what was tuned since is new enough,
// however long the caller waited.
LookupDecision Decide(const IndexHit& known, const ConvProblem& problem, const jobs::Demand& demand,
                      bool profile, absl::Time asked, absl::Time now);

}  // namespace convtune::lookup

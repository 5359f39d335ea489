// Decide says what a look-up gives from what is known, and what work would better
// it. Pure functions.
#pragma once

#include <optional>
#include <variant>

#include "absl/time/time.h"
#include "server/lookup/lookup_request.h"
#include "server/lookup/tuning_index.h"

namespace convtune::lookup {

// The evidence that counts as a hit: what the request says, else the default
// of on_miss. A profile's device can time nothing, so HEURISTIC is all that
// can be demanded of it.
Evidence LeastEvidence(const LookupRequest& request, bool profile);

// True if a tuning with `options` can give more than `stored`, of which at
// least `least` evidence is wanted.
bool IsWorthTuning(const IndexedTuning& stored, const jobs::TuningOptions& options, Evidence least,
                   bool profile);

// True if an answer of this kind is a hit, so that on_miss has nothing to do.
// `first_configs_only`: its tuning is.
bool IsEnough(Evidence evidence, bool pinned, bool first_configs_only, const LookupRequest& request,
              bool profile);

struct LookupDecision {
  std::variant<Answer, Miss> outcome;
  // The work that on_miss asks for; nullopt for an answer, and where no work
  // would help.
  std::optional<jobs::WorkKind> work;
  // Time that the tuning behind an answer took.
  absl::Duration saved = absl::ZeroDuration();
};

LookupDecision Decide(const IndexHit& known, const ConvProblem& problem,
                      const LookupRequest& request, bool profile, absl::Time now);

}  // namespace convtune::lookup

#include "server/lookup/judgement.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/model/tuning/warm_summary.h"
#include "server/decision/evidence.h"
#include "server/lookup/answer.h"

namespace convtune::lookup {
namespace {

// A tuning that ran out of time is worth repeating with a budget that is more than so many times
// what it took.
constexpr double kMoreTime = 2;

// The evidence that counts as a hit: what is demanded, else the default of on_miss. The device of a
// profile can time nothing, so HEURISTIC is its default.
Evidence LeastEvidence(const jobs::Demand& demand, bool profile) {
  if (demand.min_evidence != Evidence::kNone) return demand.min_evidence;
  return demand.wants_tuning() ? LeastTunedEvidence(profile) : Evidence::kHeuristic;
}

bool IsTooOld(absl::Time tune_time, const jobs::Demand& demand, absl::Time now) {
  return tune_time <= demand.OldestAt(now);
}

// True if a tuning with the demand's options can give more than `stored`.
bool IsWorthTuning(const IndexedTuning& stored, const jobs::Demand& demand, bool profile,
                   absl::Time now) {
  const KeptTuning& tuning = stored.tuning;
  const jobs::TuningOptions& options = demand.options;
  if (IsTooOld(tuning.tune_time, demand, now)) return true;
  if (tuning.has(IncompleteReason::kFirstConfigsOnly)) return true;
  if (options.list_only) return tuning.has(IncompleteReason::kOutdated);
  if (!profile && (tuning.evidence < Evidence::kIncomplete ||
                   tuning.evidence < LeastEvidence(demand, profile))) {
    return true;
  }
  // More time may tell what the last time did not suffice for.
  if (!profile && tuning.has(IncompleteReason::kBudgetEnded) &&
      options.time_budget > kMoreTime * tuning.elapsed) {
    return true;
  }
  if (options.api == Api::kGraph && !stored.has_graph) return true;
  if (options.api == Api::kLegacy && !stored.has_legacy && !profile) return true;
  return stored.least_skipped_workspace &&
         AllowsMore(options.memory_budget_bytes, tuning.memory_budget_bytes);
}

// The miss where the caller's demand refuses an answer of `tuning`; nullopt: the demand accepts it.
// `now` is read only where the demand limits the age.
std::optional<v1::BatchGetResult> Refuse(const v1::Answer& answer, const KeptTuning& tuning,
                                         const jobs::Demand& demand, bool profile, absl::Time now) {
  if (answer.pinned()) return std::nullopt;
  if (IsTooOld(tuning.tune_time, demand, now)) {
    return MakeMiss(
        v1::MISS_REASON_TOO_OLD,
        absl::StrCat("what is known is ", absl::FormatDuration(now - tuning.tune_time),
                     " old, asked for is less than ", absl::FormatDuration(demand.max_age)));
  }
  const auto evidence = static_cast<Evidence>(answer.evidence());
  const Evidence least = LeastEvidence(demand, profile);
  // On a profile a tuning lists all, which a look-up's first configs are not.
  const bool part_of_list =
      profile && tuning.has(IncompleteReason::kFirstConfigsOnly) && demand.wants_tuning();
  if (evidence >= least && !part_of_list) return std::nullopt;
  std::string words = absl::StrCat("what is known is ", std::string(Name(evidence)),
                                   ", asked for is at least ", std::string(Name(least)));
  if (tuning.has(IncompleteReason::kOutdated)) {
    words = absl::StrCat("what is known ", tuning.incomplete_message);
  } else if (tuning.has(IncompleteReason::kNoClock) || tuning.has(IncompleteReason::kUnjudged)) {
    // Tuning again gives more only where the worker was mended.
    absl::StrAppend(&words, ": ", tuning.incomplete_message);
  }
  return MakeMiss(v1::MISS_REASON_INSUFFICIENT_EVIDENCE, words);
}

}  // namespace

std::optional<jobs::WorkKind> BetterWork(const IndexHit& known, const jobs::Demand& demand,
                                         bool profile, absl::Time now) {
  if (!demand.wants_tuning()) return std::nullopt;
  if (known.tuning != nullptr && !IsWorthTuning(*known.tuning, demand, profile, now)) {
    return std::nullopt;
  }
  return demand.options.list_only ? jobs::WorkKind::kListAll : jobs::WorkKind::kTune;
}

LookupDecision Decide(const IndexHit& known, const ConvProblem& problem, const jobs::Demand& demand,
                      bool profile, absl::Time asked, absl::Time now) {
  const bool heuristic = demand.on_miss == jobs::OnMiss::kHeuristic;
  LookupDecision decision;
  decision.depends_on_time =
      demand.limits_age() || (known.pin != nullptr && known.pin->expire_time.has_value());
  if (known.tuning == nullptr) {
    decision.row =
        MakeMiss(v1::MISS_REASON_NOT_FOUND, "nothing is known of the problem in this environment");
    if (heuristic) decision.work = jobs::WorkKind::kFirstConfigs;
  } else {
    const KeptTuning& tuning = known.tuning->tuning;
    const bool first_configs_only = tuning.has(IncompleteReason::kFirstConfigsOnly);
    decision.row = MakeAnswer(*known.tuning, known.pin.get(), demand.constraints, problem, now);
    if (decision.row.has_answer()) {
      std::optional<v1::BatchGetResult> refused =
          Refuse(decision.row.answer(), tuning, demand, profile, asked);
      if (!refused.has_value()) return decision;
      decision.row = *std::move(refused);
      if (heuristic && tuning.has(IncompleteReason::kOutdated)) {
        decision.work = jobs::WorkKind::kFirstConfigs;
      } else if (heuristic && decision.row.miss().reason() == v1::MISS_REASON_TOO_OLD &&
                 tuning.evidence <= Evidence::kHeuristic) {
        // A guess makes way for a guess, and a measurement does not.
        decision.work =
            first_configs_only ? jobs::WorkKind::kFirstConfigs : jobs::WorkKind::kListAll;
      }
    } else if (heuristic && first_configs_only) {
      decision.work = jobs::WorkKind::kListAll;
    }
  }
  if (!heuristic) decision.work = BetterWork(known, demand, profile, asked);
  return decision;
}

}  // namespace convtune::lookup

#include "server/lookup/judgement.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/model/tuning/warm_summary.h"
#include "server/decision/evidence.h"

namespace convtune::lookup {
namespace {

// A budget that is this many times what a tuning took is another budget.
constexpr double kMoreTime = 2;

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

// A reason that Judge gave, in words.
std::string WordsOf(MissReason reason, const KeptTuning& tuning, const Answer& answer,
                    const jobs::Demand& demand, bool profile, absl::Time now) {
  if (reason == MissReason::kTooOld) {
    return absl::StrCat("what is known is ", absl::FormatDuration(now - tuning.tune_time),
                        " old, asked for is less than ", absl::FormatDuration(demand.max_age));
  }
  if (tuning.has(IncompleteReason::kOutdated)) {
    return absl::StrCat("what is known ", tuning.incomplete_message);
  }
  std::string words =
      absl::StrCat("what is known is ", std::string(Name(answer.evidence)),
                   ", asked for is at least ", std::string(Name(LeastEvidence(demand, profile))));
  // Tuning again gives more only where the worker was mended.
  if (tuning.has(IncompleteReason::kNoClock) || tuning.has(IncompleteReason::kUnjudged)) {
    absl::StrAppend(&words, ": ", tuning.incomplete_message);
  }
  return words;
}

}  // namespace

Evidence LeastEvidence(const jobs::Demand& demand, bool profile) {
  if (demand.min_evidence != Evidence::kNone) return demand.min_evidence;
  return demand.wants_tuning() ? LeastTunedEvidence(profile) : Evidence::kHeuristic;
}

std::optional<MissReason> Judge(const Answer& answer, const KeptTuning& tuning,
                                const jobs::Demand& demand, bool profile, absl::Time now) {
  if (answer.pinned) return std::nullopt;
  if (IsTooOld(tuning.tune_time, demand, now)) return MissReason::kTooOld;
  // On a profile a tuning lists all, which a look-up's first configs are not.
  if (profile && tuning.has(IncompleteReason::kFirstConfigsOnly) && demand.wants_tuning()) {
    return MissReason::kInsufficientEvidence;
  }
  if (answer.evidence < LeastEvidence(demand, profile)) return MissReason::kInsufficientEvidence;
  return std::nullopt;
}

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
    decision.outcome =
        Miss{MissReason::kNotFound, "nothing is known of the problem in this environment", "",
             std::nullopt};
    if (heuristic) decision.work = jobs::WorkKind::kFirstConfigs;
  } else {
    const KeptTuning& tuning = known.tuning->tuning;
    const bool first_configs_only = tuning.has(IncompleteReason::kFirstConfigsOnly);
    decision.outcome =
        MakeAnswer(*known.tuning, known.pin.get(), demand.constraints, problem.data_type(), now);
    if (const Answer* answer = std::get_if<Answer>(&decision.outcome)) {
      const std::optional<MissReason> reason = Judge(*answer, tuning, demand, profile, asked);
      if (!reason) return decision;
      decision.outcome = Miss{*reason, WordsOf(*reason, tuning, *answer, demand, profile, asked),
                              "", std::nullopt};
      if (heuristic && tuning.has(IncompleteReason::kOutdated)) {
        decision.work = jobs::WorkKind::kFirstConfigs;
      } else if (heuristic && reason == MissReason::kTooOld &&
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

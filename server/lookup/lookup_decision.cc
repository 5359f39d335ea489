#include "server/lookup/lookup_decision.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "server/decision/library_versions.h"
#include "server/decision/ranking.h"

namespace convtune::lookup {
namespace {

// A budget that is this many times what a tuning took is another budget.
constexpr double kMoreTime = 2;

bool WantsTuning(const LookupRequest& request) {
  return request.on_miss == OnMiss::kEnqueue || request.on_miss == OnMiss::kTune;
}

}  // namespace

Evidence LeastEvidence(const LookupRequest& request, bool profile) {
  if (request.min_evidence != Evidence::kNone) return request.min_evidence;
  return WantsTuning(request) && !profile ? Evidence::kIncomplete : Evidence::kHeuristic;
}

bool IsWorthTuning(const IndexedTuning& stored, const jobs::TuningOptions& options, Evidence least,
                   bool profile) {
  const KeptTuning& tuning = stored.tuning;
  if (tuning.has(IncompleteReason::kFirstConfigsOnly)) return true;
  if (options.list_only) return tuning.has(IncompleteReason::kOutdated);
  if (!profile && (tuning.evidence < Evidence::kIncomplete || tuning.evidence < least)) return true;
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

bool IsEnough(Evidence evidence, bool pinned, bool first_configs_only, const LookupRequest& request,
              bool profile) {
  if (pinned) return true;
  // On a profile a tuning lists all, which a look-up's first configs are not.
  if (profile && first_configs_only && WantsTuning(request)) return false;
  return evidence >= LeastEvidence(request, profile);
}

LookupDecision Decide(const IndexHit& known, const ConvProblem& problem,
                      const LookupRequest& request, bool profile, absl::Time now) {
  if (known.tuning == nullptr) {
    LookupDecision decision{
        Miss{MissReason::kNotFound, "nothing is known of the problem in this environment", "",
             std::nullopt},
        std::nullopt};
    if (WantsTuning(request)) decision.work = jobs::WorkKind::kTune;
    if (request.on_miss == OnMiss::kHeuristic) decision.work = jobs::WorkKind::kFirstConfigs;
    return decision;
  }
  LookupDecision decision{
      MakeAnswer(*known.tuning, known.pin.get(), request.constraints, problem.data_type(), now),
      std::nullopt};
  const Evidence least = LeastEvidence(request, profile);
  const bool outdated = known.tuning->tuning.has(IncompleteReason::kOutdated);
  const bool first_configs_only = known.tuning->tuning.has(IncompleteReason::kFirstConfigsOnly);
  if (const Answer* answer = std::get_if<Answer>(&decision.outcome)) {
    if (IsEnough(answer->evidence, answer->pinned, first_configs_only, request, profile)) {
      decision.saved = known.tuning->tuning.elapsed;
      return decision;
    }
    std::string message = absl::StrCat("what is known ", known.tuning->tuning.incomplete_message);
    if (!outdated) {
      message = absl::StrCat("what is known is ", std::string(Name(answer->evidence)),
                             ", asked for is at least ", std::string(Name(least)));
      // Tuning again gives more only where the worker was mended.
      if (known.tuning->tuning.has(IncompleteReason::kNoClock) ||
          known.tuning->tuning.has(IncompleteReason::kUnjudged)) {
        absl::StrAppend(&message, ": ", known.tuning->tuning.incomplete_message);
      }
    }
    decision.outcome = Miss{MissReason::kInsufficientEvidence, message, "", std::nullopt};
    if (outdated && request.on_miss == OnMiss::kHeuristic)
      decision.work = jobs::WorkKind::kFirstConfigs;
  } else if (request.on_miss == OnMiss::kHeuristic && first_configs_only) {
    decision.work = jobs::WorkKind::kListAll;
  }
  if (WantsTuning(request) && IsWorthTuning(*known.tuning, request.options, least, profile)) {
    decision.work = jobs::WorkKind::kTune;
  }
  return decision;
}

}  // namespace convtune::lookup

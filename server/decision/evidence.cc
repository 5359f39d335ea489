#include "server/decision/evidence.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "proto/model/tuning/ranking.h"

namespace convtune::decision {
namespace {

int Count(const Tuning& tuning, CandidateStatus status) {
  return static_cast<int>(
      std::count_if(tuning.candidates.begin(), tuning.candidates.end(),
                    [status](const Candidate& c) { return c.status == status; }));
}

// Rounds its numbers to float, as its record stores them: intervals that touch are compared
// the same way now and after the tuning was read from the database. What a float cannot hold
// becomes the largest that it can, and so does NaN: a record has finite numbers alone.
void RoundToRecord(Candidate* candidate) {
  const auto round = [](double* value) {
    constexpr float kMost = std::numeric_limits<float>::max();
    *value = *value <= kMost ? static_cast<float>(*value) : kMost;
  };
  for (double* value :
       {&candidate->median_us, &candidate->q1_us, &candidate->q3_us, &candidate->low_us,
        &candidate->high_us, &candidate->find_us, &candidate->host_us, &candidate->sm_clock_mhz}) {
    round(value);
  }
  if (candidate->error) round(&*candidate->error);
  for (TimeSummary& time : candidate->other_times) {
    for (double* value : {&time.median_us, &time.low_us, &time.high_us}) round(value);
  }
}

// True if both tunings are incomplete, and neither would make the other less clean.
bool CanBeJoined(const Tuning& stored, const Tuning& made) {
  return made.evidence == Evidence::kIncomplete && stored.evidence == Evidence::kIncomplete &&
         made.conditions.clean() == stored.conditions.clean();
}

std::string Candidates(int count) {
  return absl::StrCat(count, count == 1 ? " candidate" : " candidates");
}

// True if what the API's heuristic lists before its stock choice, or instead of
// one, failed: what cuDNN refused was never its choice.
bool StockFailed(const std::vector<Candidate>& candidates, Api api) {
  const std::optional<size_t> stock = StockIndex(candidates, api);
  return std::any_of(candidates.begin(), candidates.end(), [&](const Candidate& c) {
    return ApiOf(c.id) == api && c.heuristic_rank >= 0 &&
           (c.status == CandidateStatus::kFailed || c.status == CandidateStatus::kQuarantined) &&
           (!stock || IsListedBefore(c, candidates[*stock]));
  });
}

// Adds the reason kStockFailed if the first candidate that an API's heuristic lists failed
// or is quarantined. The stock choice is then not the one that programs run, and the
// tuning is not MEASURED.
void NoteFailedStock(Tuning* tuning) {
  if (tuning->has(IncompleteReason::kStockFailed) || tuning->evidence == Evidence::kObserved) {
    return;
  }
  for (const Api api : {Api::kGraph, Api::kLegacy}) {
    if (!StockFailed(tuning->candidates, api)) continue;
    AddReason(IncompleteReason::kStockFailed,
              absl::StrCat("what cuDNN's heuristic lists first for the ", std::string(Name(api)),
                           " API failed: others are compared with its next"),
              tuning);
    tuning->evidence = std::min(tuning->evidence, Evidence::kIncomplete);
  }
}

// What keeps a tuning from being MEASURED.
struct Flaw {
  bool there;
  IncompleteReason reason;
  std::string words;
};

std::string WhyOtherLibrary(const char* library, const std::string& then, const std::string& now) {
  if (now.empty() || then == now) return "";
  return absl::StrCat("measured with ", then.empty() ? "an unknown " : "", library,
                      then.empty() ? "" : " ", then, ", there is ", now, " now");
}

}  // namespace

void FinishTuning(const TuningCircumstances& circumstances, Tuning* tuning) {
  for (Candidate& candidate : tuning->candidates) RoundToRecord(&candidate);
  RankCandidates(&tuning->candidates);
  const int timed = Count(*tuning, CandidateStatus::kTimed);
  const int finalized = Count(*tuning, CandidateStatus::kFinalized);
  const int over_budget = Count(*tuning, CandidateStatus::kSkippedBudget);
  const int over_memory = Count(*tuning, CandidateStatus::kSkippedMemory);
  tuning->incomplete_reasons = 0;
  tuning->incomplete_message.clear();
  const Doubt& doubt = circumstances.doubt;
  using enum IncompleteReason;
  std::vector<Flaw> flaws = {
      {circumstances.cut_off, kBudgetEnded,
       "the budget ended while the worker was at one candidate"},
      {circumstances.clock_failed, kNoClock,
       absl::StrCat("the worker's clock failed its self-check: ",
                    timed > 0 ? "what is measured may be wrong" : "nothing is measured")},
      {circumstances.listing_cut, kListingCut,
       "the budget or the candidate limit ended the listing"},
      {circumstances.find_left_out, kFindLeftOut,
       "the problem is too large for cudnnFind: of the legacy API what its heuristic lists was "
       "tried"},
      {circumstances.one_api, kOneApi, "only one of cuDNN's APIs was searched"},
      {over_budget > 0, kBudgetEnded,
       absl::StrCat("the budget ended before ", Candidates(over_budget))},
      {circumstances.race_cut, kBudgetEnded,
       "the budget ended before the finalists could be told apart"},
      {doubt.none_is_right, kUnjudged, "no result could be judged"},
      {doubt.candidates > 0, kSomeUnjudged,
       absl::StrCat("could not be judged: ", Candidates(doubt.candidates), " (", doubt.why, ")")},
      {doubt.graph_stock, kGraphStockUnjudged, "among them the graph API's stock choice"},
      {doubt.legacy_stock, kLegacyStockUnjudged, "among them the legacy API's stock choice"}};
  for (const std::string& mark : Marks(tuning->conditions)) {
    flaws.push_back({true, kConditions, mark});
  }
  flaws.push_back(
      {timed > 0 && finalized > 0, kNotTimed, absl::StrCat("not timed: ", Candidates(finalized))});
  flaws.push_back(
      {over_memory > 0, kMemory, absl::StrCat("skipped for memory: ", Candidates(over_memory))});
  if (circumstances.first_configs_only) {
    flaws = {{true, kFirstConfigsOnly, "heuristic look-up: first configs only"}};
  }
  for (const Flaw& flaw : flaws) {
    if (flaw.there) AddReason(flaw.reason, flaw.words, tuning);
  }
  if (timed > 0 && !tuning->has(IncompleteReason::kUnjudged)) {
    tuning->evidence =
        tuning->incomplete_reasons == 0 ? Evidence::kMeasured : Evidence::kIncomplete;
  } else {
    tuning->evidence = timed + finalized > 0 ? Evidence::kHeuristic : Evidence::kNone;
  }
  NoteFailedStock(tuning);
}

bool IsUnjudgedStock(const Candidate& candidate, uint32_t incomplete_reasons,
                     const std::vector<Candidate>& candidates) {
  const Api api = ApiOf(candidate.id);
  const IncompleteReason reason = api == Api::kGraph ? IncompleteReason::kGraphStockUnjudged
                                                     : IncompleteReason::kLegacyStockUnjudged;
  if ((incomplete_reasons & ReasonBit(reason)) == 0) return false;
  const std::optional<size_t> stock = StockIndex(candidates, api);
  return stock && candidates[*stock].id == candidate.id;
}

void NoteQuarantined(Tuning* tuning) {
  RankCandidates(&tuning->candidates);
  const bool any = std::any_of(tuning->candidates.begin(), tuning->candidates.end(),
                               [](const Candidate& c) { return c.usable(); });
  if (!any && tuning->evidence > Evidence::kIncomplete) {
    tuning->evidence = Evidence::kIncomplete;
    tuning->incomplete_reasons = 0;
    tuning->incomplete_message.clear();
    AddReason(IncompleteReason::kAllQuarantined, "all candidates that ran are quarantined", tuning);
  }
  NoteFailedStock(tuning);
}

bool CarryOverOtherApi(const Tuning& stored, Tuning* made) {
  if (!CanBeJoined(stored, *made)) return false;
  bool lost = false;
  std::vector<Candidate> carried;
  for (const Candidate& s : stored.candidates) {
    if (!s.timed()) continue;
    const bool known = absl::c_any_of(
        made->candidates, [&s](const Candidate& m) { return ApiOf(m.id) == ApiOf(s.id); });
    lost = lost || known;
    if (!known) carried.push_back(s);
  }
  if (!carried.empty()) {
    made->candidates.insert(made->candidates.end(), carried.begin(), carried.end());
    AddReason(IncompleteReason::kOtherApiCarried,
              "the other API's candidates are of a tuning before", made);
    // Unjudged stock choices stay unjudged.
    for (const auto& [reason, words] : {std::pair(IncompleteReason::kGraphStockUnjudged,
                                                  "the graph API's stock choice is unjudged"),
                                        std::pair(IncompleteReason::kLegacyStockUnjudged,
                                                  "the legacy API's stock choice is unjudged")}) {
      if (stored.has(reason) && !made->has(reason)) AddReason(reason, words, made);
    }
    Merge(stored.conditions, &made->conditions);
    RankCandidates(&made->candidates);
  }
  return !lost;
}

std::string WhyOutdated(const Tuning& tuning, const ProvenanceByEnvironment& there_is) {
  const auto found = there_is.find(tuning.key.environment_text);
  if (found == there_is.end() || tuning.evidence == Evidence::kObserved) return "";
  const Provenance& now = found->second;
  const Provenance& then = tuning.provenance;
  const auto uses = [&tuning](BehaviorNote note) {
    return std::any_of(tuning.candidates.begin(), tuning.candidates.end(),
                       [note](const Candidate& c) { return c.usable() && c.has(note); });
  };
  if (uses(BehaviorNote::kCublasLtDependency)) {
    std::string why = WhyOtherLibrary("cuBLASLt", then.cublaslt_build, now.cublaslt_build);
    if (!why.empty()) return why;
  }
  return uses(BehaviorNote::kRuntimeCompilation)
             ? WhyOtherLibrary("NVRTC", then.nvrtc_build, now.nvrtc_build)
             : "";
}

}  // namespace convtune::decision

#include "server/decision/ranking.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"

namespace convtune::decision {
namespace {

// Fewer samples than a 99% interval of a median takes tell little: of one or two
// nothing is taken for known, and from three on what they say must be far from
// what noise does on any GPU that was simulated.
constexpr int kSamplesOfInterval = 8;
constexpr int kFewestSamples = 3;
constexpr double kFewSamplesFactor = 1.25;

bool FasterMedian(const Candidate* a, const Candidate* b) {
  return std::tie(a->median_us, a->high_us) < std::tie(b->median_us, b->high_us);
}

// The least that the stock choice may take, for replacing it.
double StockAtBest(const Candidate& stock, const Candidate& fastest) {
  const int samples = std::min(stock.sample_count, fastest.sample_count);
  if (samples == 0 || samples >= kSamplesOfInterval) return stock.low_us;
  return samples < kFewestSamples ? 0 : stock.low_us / kFewSamplesFactor;
}

int StatusClass(const Candidate& candidate) {
  if (candidate.timed()) return 0;
  if (candidate.usable()) return 1;
  return 2;
}

// The shortest host time that is known of the candidates; 0 if none is.
template <typename Iterator>
double LeastHostTime(Iterator begin, Iterator end) {
  double least = 0;
  for (auto c = begin; c != end; ++c) {
    const double host_us = (*c)->host_us;
    if (host_us > 0 && (least == 0 || host_us < least)) least = host_us;
  }
  return least;
}

// Order of candidates that are tied, the cheapest of which takes the host
// `least_host_us`. All are compared with that one, and not each with each, so
// that the order is transitive though small differences do not count.
auto TiedBefore(double least_host_us) {
  return [least_host_us](const Candidate* a, const Candidate* b) {
    const bool a_is_dear = IsCheaperToLaunch(least_host_us, a->host_us);
    const bool b_is_dear = IsCheaperToLaunch(least_host_us, b->host_us);
    return a_is_dear != b_is_dear ? b_is_dear : TieBefore(*a, *b);
  };
}

// Orders `timed`, which is not empty, class of ties by class of ties.
void OrderTimed(std::vector<const Candidate*>* timed) {
  std::sort(timed->begin(), timed->end(), FasterMedian);
  auto begin = timed->begin();
  while (begin != timed->end()) {
    const double bound = (*begin)->high_us;
    // Stable, so that what is not tied keeps its order by median.
    const auto end = std::stable_partition(
        begin, timed->end(), [bound](const Candidate* c) { return c->low_us <= bound; });
    std::sort(begin, end, TiedBefore(LeastHostTime(begin, end)));
    begin = end;
  }
}

int Count(const Tuning& tuning, CandidateStatus status) {
  return static_cast<int>(
      std::count_if(tuning.candidates.begin(), tuning.candidates.end(),
                    [status](const Candidate& c) { return c.status == status; }));
}

// Rounds its numbers to float, as its record stores them: intervals that touch are compared
// the same way now and after the tuning was read from the database.
void RoundToRecord(Candidate* candidate) {
  const auto round = [](double* value) { *value = static_cast<float>(*value); };
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

void NoteDoubt(const Doubt& doubt, Tuning* tuning) {
  if (doubt.candidates == 0) return;
  if (doubt.none_is_right) {
    AddReason(IncompleteReason::kUnjudged, "no result could be judged", tuning);
  }
  AddReason(
      IncompleteReason::kSomeUnjudged,
      absl::StrCat("could not be judged: ", Candidates(doubt.candidates), " (", doubt.why, ")"),
      tuning);
  if (doubt.graph_stock) {
    AddReason(IncompleteReason::kGraphStockUnjudged, "among them the graph API's stock choice",
              tuning);
  }
  if (doubt.legacy_stock) {
    AddReason(IncompleteReason::kLegacyStockUnjudged, "among them the legacy API's stock choice",
              tuning);
  }
}

}  // namespace

bool TieBefore(const Candidate& a, const Candidate& b) {
  if (a.workspace_bytes != b.workspace_bytes) return a.workspace_bytes < b.workspace_bytes;
  if (a.deterministic() != b.deterministic()) return a.deterministic();
  return ToText(a.id) < ToText(b.id);
}

bool HeuristicBefore(const Candidate& a, const Candidate& b) {
  if (IsListedBefore(a, b) || IsListedBefore(b, a)) return IsListedBefore(a, b);
  return ToText(a.id) < ToText(b.id);
}

const Candidate* PickWinner(const std::vector<const Candidate*>& eligible, const Candidate* stock) {
  const Candidate* fastest = nullptr;
  for (const Candidate* c : eligible) {
    if (c->timed() && (fastest == nullptr || FasterMedian(c, fastest))) fastest = c;
  }
  const Candidate* best = nullptr;
  if (fastest == nullptr) {
    for (const Candidate* c : eligible) {
      if (best == nullptr || HeuristicBefore(*c, *best)) best = c;
    }
    return best;
  }
  const bool has_stock = stock != nullptr && stock->timed() &&
                         std::find(eligible.begin(), eligible.end(), stock) != eligible.end();
  const double stock_us = has_stock ? StockAtBest(*stock, *fastest) : 0;
  if (has_stock && stock_us <= fastest->high_us) return stock;
  std::vector<const Candidate*> tied;
  for (const Candidate* c : eligible) {
    if (!c->timed() || c->low_us > fastest->high_us) continue;
    // Tied with the fastest, and known to be faster than the stock choice.
    if (has_stock && c->high_us >= stock_us && c != fastest) continue;
    tied.push_back(c);
  }
  return *std::min_element(tied.begin(), tied.end(),
                           TiedBefore(LeastHostTime(tied.begin(), tied.end())));
}

void RankCandidates(std::vector<Candidate>* candidates) {
  std::vector<const Candidate*> timed, finalized, rest;
  for (const Candidate& c : *candidates) {
    const int status_class = StatusClass(c);
    (status_class == 0 ? timed : status_class == 1 ? finalized : rest).push_back(&c);
  }
  const auto by_heuristic = [](const Candidate* a, const Candidate* b) {
    return HeuristicBefore(*a, *b);
  };
  OrderTimed(&timed);
  std::sort(finalized.begin(), finalized.end(), by_heuristic);
  std::sort(rest.begin(), rest.end(), by_heuristic);
  std::vector<const Candidate*> order = std::move(timed);
  order.insert(order.end(), finalized.begin(), finalized.end());
  const std::optional<size_t> stock = StockIndex(*candidates);
  const Candidate* winner = PickWinner(order, stock ? &(*candidates)[*stock] : nullptr);
  if (const auto it = std::find(order.begin(), order.end(), winner); it != order.end()) {
    std::rotate(order.begin(), it, it + 1);
  }
  order.insert(order.end(), rest.begin(), rest.end());
  std::vector<Candidate> ranked;
  ranked.reserve(order.size());
  for (const Candidate* c : order) {
    ranked.push_back(std::move((*candidates)[static_cast<size_t>(c - candidates->data())]));
  }
  *candidates = std::move(ranked);
}

void FinishTuning(const TuningCircumstances& circumstances, Tuning* tuning) {
  for (Candidate& candidate : tuning->candidates) RoundToRecord(&candidate);
  RankCandidates(&tuning->candidates);
  const int timed = Count(*tuning, CandidateStatus::kTimed);
  const int finalized = Count(*tuning, CandidateStatus::kFinalized);
  const int over_budget = Count(*tuning, CandidateStatus::kSkippedBudget);
  const int over_memory = Count(*tuning, CandidateStatus::kSkippedMemory);
  tuning->incomplete_reasons = 0;
  tuning->incomplete_message.clear();
  const auto add = [tuning](IncompleteReason reason, const std::string& words) {
    AddReason(reason, words, tuning);
  };
  if (circumstances.first_configs_only) {
    add(IncompleteReason::kFirstConfigsOnly, "heuristic look-up: first configs only");
  } else {
    if (circumstances.cut_off) {
      add(IncompleteReason::kBudgetEnded, "the budget ended while the worker was at one candidate");
    }
    if (circumstances.clock_failed) {
      add(IncompleteReason::kNoClock,
          timed > 0 ? "the worker's clock failed its self-check: what is measured may be wrong"
                    : "the worker's clock failed its self-check: nothing is measured");
    }
    if (circumstances.listing_cut) {
      add(IncompleteReason::kListingCut, "the budget or the candidate limit ended the listing");
    }
    if (circumstances.find_left_out) {
      add(IncompleteReason::kFindLeftOut,
          "the problem is too large for cudnnFind: of the legacy API what its heuristic lists was "
          "tried");
    }
    if (circumstances.one_api) {
      add(IncompleteReason::kOneApi, "only one of cuDNN's APIs was searched");
    }
    if (over_budget > 0) {
      add(IncompleteReason::kBudgetEnded,
          absl::StrCat("the budget ended before ", Candidates(over_budget)));
    }
    if (circumstances.race_cut) {
      add(IncompleteReason::kBudgetEnded,
          "the budget ended before the finalists could be told apart");
    }
    NoteDoubt(circumstances.doubt, tuning);
    for (const std::string& mark : Marks(tuning->conditions)) {
      add(IncompleteReason::kConditions, mark);
    }
    if (timed > 0 && finalized > 0) {
      add(IncompleteReason::kNotTimed, absl::StrCat("not timed: ", Candidates(finalized)));
    }
    if (over_memory > 0) {
      add(IncompleteReason::kMemory, absl::StrCat("skipped for memory: ", Candidates(over_memory)));
    }
  }
  if (timed > 0 && !tuning->has(IncompleteReason::kUnjudged)) {
    tuning->evidence =
        tuning->incomplete_reasons == 0 ? Evidence::kMeasured : Evidence::kIncomplete;
  } else {
    tuning->evidence = timed + finalized > 0 ? Evidence::kHeuristic : Evidence::kNone;
  }
  NoteFailedStock(tuning);
}

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

bool AddsAnotherApi(const Tuning& stored, const Tuning& made) {
  if (!CanBeJoined(stored, made)) return false;
  return std::none_of(stored.candidates.begin(), stored.candidates.end(), [&](const Candidate& s) {
    return s.timed() &&
           std::any_of(made.candidates.begin(), made.candidates.end(),
                       [&s](const Candidate& m) { return ApiOf(m.id) == ApiOf(s.id); });
  });
}

bool CarryOverOtherApi(const Tuning& stored, Tuning* made) {
  if (!CanBeJoined(stored, *made)) return false;
  bool carried = false;
  for (const Api api : {Api::kGraph, Api::kLegacy}) {
    const auto of_api = [api](const Candidate& c) { return ApiOf(c.id) == api; };
    if (std::any_of(made->candidates.begin(), made->candidates.end(), of_api)) continue;
    for (const Candidate& c : stored.candidates) {
      if (!of_api(c) || !c.timed()) continue;
      made->candidates.push_back(c);
      carried = true;
    }
  }
  if (carried) {
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
  return carried;
}

}  // namespace convtune::decision

// FinishTuning says how far a tuning can be trusted: its evidence, and why it is incomplete. The
// other functions keep both true when its candidates are quarantined, are joined with those of
// another tuning, or were measured with other libraries than there are. Pure functions.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "proto/model/tuning/tuning.h"
#include "server/decision/correctness.h"

namespace convtune::decision {

// Circumstances of a tuning beyond its candidates' outcomes.
struct TuningCircumstances {
  bool first_configs_only = false;  // a heuristic look-up that stopped early
  bool one_api = false;             // candidates of one API were timed, by request
  bool listing_cut = false;         // the budget or the candidate limit ended the listing
  bool race_cut = false;            // the budget ended the race before it was decided
  bool cut_off = false;             // the budget ended while the worker was at one candidate
  bool find_left_out = false;       // the problem is too large for cudnnFind*
  bool clock_failed = false;        // the worker's clocks do not agree
  Doubt doubt = {};                 // results that could not be judged
};

// Ranks the candidates and sets evidence and why it is incomplete. Nothing timed,
// or no result judged to be right, is HEURISTIC (kNone if nothing ran); any other
// reason makes it INCOMPLETE; else it is MEASURED.
void FinishTuning(const TuningCircumstances& circumstances, Tuning* tuning);

// True for a stock choice whose result could not be judged. It stays an answer,
// as programs run it anyway, but is no better than cuDNN's heuristic, and is not
// published. `incomplete_reasons` and `candidates` are the tuning's.
bool IsUnjudgedStock(const Candidate& candidate, uint32_t incomplete_reasons,
                     const std::vector<Candidate>& candidates);

// To be called after candidates were quarantined: ranks them anew. Where nothing that ran is
// left, the tuning is incomplete, so that any with a result takes its place. Where a stock choice
// is lost, it is not MEASURED.
void NoteQuarantined(Tuning* tuning);

// Copies the candidates of an API that `stored` has timed and `made` knows nothing of to
// `made`, with their conditions, and ranks `made` anew. Does so only if both were timed
// in part and one is as clean as the other. Returns true if then nothing is lost where `made` takes
// the place of `stored`: it has all that `stored` has timed.
bool CarryOverOtherApi(const Tuning& stored, Tuning* made);

// What there is, by the text of the environment that a device has.
using ProvenanceByEnvironment = std::map<std::string, Provenance>;

// Empty if all that `tuning` says holds for what there is now, or no device has its environment;
// else why not. A candidate that ran and whose notes say that it is compiled at run time holds for
// one build of NVRTC, one that uses cuBLASLt for one of cuBLASLt. A build that the tuning does not
// name counts as another one, and a build that `now` does not name as the same one. An OBSERVED
// tuning always holds.
std::string WhyOutdated(const Tuning& tuning, const ProvenanceByEnvironment& now);

}  // namespace convtune::decision

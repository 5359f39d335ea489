#include "server/decision/contests.h"

#include "proto/model/tuning/note_rules.h"

namespace convtune::decision {

uint32_t ContestsOf(const Candidate& candidate, const Candidate* stock) {
  uint32_t contests = ContestBit(Contest::kAny);
  if (candidate.workspace_bytes == 0) contests |= ContestBit(Contest::kNoWorkspace);
  if (candidate.deterministic()) contests |= ContestBit(Contest::kDeterministic);
  if (stock != nullptr && KeepsNumerics(candidate.numerical_notes, stock->numerical_notes)) {
    contests |= ContestBit(Contest::kStockNumerics);
  }
  if (candidate.capturable()) contests |= ContestBit(Contest::kCapturable);
  contests |=
      ContestBit(ApiOf(candidate.id) == Api::kGraph ? Contest::kGraphApi : Contest::kLegacyApi);
  return contests;
}

}  // namespace convtune::decision

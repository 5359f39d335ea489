// A Contest is a kind of caller, such as one that has no workspace to give. Each kind has a
// winner of its own. Plain functions.
#pragma once

#include <cstdint>
#include <vector>

#include "proto/model/tuning/candidate.h"

namespace convtune::decision {

// Callers differ in what they can use, so that not every candidate takes part in every
// contest. A contest is named for what its candidates have, and has a bit in a mask.
enum class Contest {
  kAny = 0,
  kNoWorkspace = 1,
  kDeterministic = 2,
  kStockNumerics = 3,  // see KeepsNumerics
  kCapturable = 4,
  kGraphApi = 5,
  kLegacyApi = 6
};
inline constexpr int kContests = 7;

constexpr uint32_t ContestBit(Contest contest) { return 1U << static_cast<int>(contest); }

// The contests that the candidate takes part in; `stock` may be nullptr.
uint32_t ContestsOf(const Candidate& candidate, const Candidate* stock);

}  // namespace convtune::decision

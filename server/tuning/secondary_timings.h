// TimeSecondary times finalists launched and fed in other ways than in the race.
#pragma once

#include <map>
#include <vector>

#include "absl/status/status.h"
#include "proto/base/clock.h"
#include "proto/model/enums.h"
#include "proto/model/tuning/candidate.h"
#include "proto/model/tuning/conditions.h"
#include "server/supervisor/worker_client.h"

namespace convtune::tuning {

// The candidates to time, and in which ways.
struct SecondaryTimingsPlan {
  std::vector<int> finalists;  // of a race of eager launches with `raced` caches
  CacheState raced = CacheState::kInputHot;
  // False: replays of CUDA graphs with x in the caches, and eager launches with
  // cold caches. True: both launches with every cache state.
  bool all_ways = false;
};

// Times the finalists in other ways than the race until `end`, in interleaved
// rounds, as replays those that can be captured into a CUDA graph. Writes what
// they gave into Candidate::other_times, also when it ends with an error; looks
// at the GPU are merged into `conditions`. A way that `end` leaves too few
// rounds for is not written, nor is a candidate whose samples do not compare
// with the others' (see CountsBlocked), nor are times with cold caches where the
// worker's flush does nothing. Errors are the client's.
absl::Status TimeSecondary(const SecondaryTimingsPlan& plan, SteadyTime end,
                           std::map<int, Candidate>* candidates, Conditions* conditions,
                           supervisor::WorkerClient* client);

}  // namespace convtune::tuning

// Times of finalists launched and fed in other ways than in the race.
#pragma once

#include <map>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/model/candidate.h"
#include "proto/model/conditions.h"
#include "proto/model/enums.h"
#include "server/tuner/worker_client.h"

namespace convtune {

// Who is timed.
struct Finalists {
  std::vector<int> eager;    // of the race, in eager launches with `raced` caches
  std::vector<int> replays;  // that can be captured into a CUDA graph
  CacheState raced = CacheState::kInputHot;
};

// Times them in every other way until `end`: replays of CUDA graphs and the
// other cache states, in interleaved rounds; and writes what they gave into
// Candidate::other_times, also when it ends with an error; looks at the card
// are merged into `conditions`. A way that `end`
// leaves too few rounds for is not written; nor are times with cold caches where
// the worker's flush does nothing. Errors are the client's. REQUIRES:
// client->checks_results().
absl::Status TimeOtherWays(const Finalists& finalists, absl::Time end,
                           std::map<int, Candidate>* candidates, Conditions* conditions,
                           WorkerClient* client);

}  // namespace convtune

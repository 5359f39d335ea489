// TimeSecondary times finalists launched and fed in other ways than in the race.
#pragma once

#include <map>
#include <vector>

#include "absl/status/status.h"
#include "proto/base/clock.h"
#include "proto/model/tuning/candidate.h"
#include "proto/model/tuning/tuning.h"
#include "server/supervisor/worker_client.h"

namespace convtune::tuning {

// Times the finalists of the race that `tuning` tells of in other ways than it did, until `end`,
// in interleaved rounds: as replays of CUDA graphs with x in the caches, those that can be
// captured, and launched with cold caches; `all_ways`: both launches with every cache state.
// Writes what they gave into Candidate::other_times, also when it ends with an error; looks
// at the GPU are merged into the tuning's conditions. A way that `end` leaves too few
// rounds for is not written, nor is a candidate whose samples do not compare
// with the others' (see CountsBlocked), nor are times with cold caches where the
// worker's flush does nothing. Errors are the client's.
absl::Status TimeSecondary(const std::vector<int>& finalists, bool all_ways, SteadyTime end,
                           std::map<int, Candidate>* candidates, Tuning* tuning,
                           supervisor::WorkerClient* client);

}  // namespace convtune::tuning

// How a problem is tuned: what is asked of a worker, and in which order.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/base/clock.h"
#include "proto/model/tuning.h"
#include "server/tuner/tuning_queue.h"
#include "server/tuner/worker_client.h"

namespace convtune {

// How many samples are taken. Screening drops candidates that cannot win; the
// finalists are then timed in rounds until each has `final_rounds` samples or
// the budget ends.
struct SamplingPolicy {
  int first_configs = 3;  // of a heuristic look-up
  int screen_warmups = 1;
  int screen_rounds = 3;
  double screen_factor = 2.0;  // times the best median: farther behind is dropped
  int rounds_per_request = 10;
  int final_rounds = 30;
  int enough_rounds = 10;  // fewer samples than this are no measurement
};

struct RunnerInput {
  WorkSpec spec;
  Provenance provenance;
  // Candidates that are not to be touched, with the reason.
  std::map<CandidateId, std::string> quarantined;
  const Clock* clock = nullptr;
  std::function<void(const WorkProgress&)> progress;
};

// What a run came to. `candidates` are those that were listed, by the worker's
// index, also when the worker was lost.
struct RunnerOutput {
  absl::StatusOr<Tuning> tuning = absl::UnknownError("did not run");
  std::map<int, CandidateId> candidates;
};

// Runs one item in an open session. Errors are the client's, and NOT_FOUND
// with the reasons if no candidate ran.
RunnerOutput RunTuning(const RunnerInput& input, const SamplingPolicy& policy,
                       WorkerClient* client);

// Prepares and times nothing but `suspect`. OK if the worker survives it,
// whether the candidate works or not.
absl::Status RunAlone(const WorkSpec& spec, const CandidateId& suspect, WorkerClient* client);

}  // namespace convtune

// RunTuning tunes a problem: it decides what is asked of a worker, and in which order.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/base/clock.h"
#include "proto/model/tuning/tuning.h"
#include "proto/worker_client/worker_client.h"
#include "server/jobs/work_spec.h"

namespace convtune::tuning {

struct RunnerInput {
  jobs::WorkSpec spec;
  Provenance provenance;
  // Candidates that are not to be touched.
  std::map<CandidateId, QuarantineEntry> quarantined;
  // Candidates that there is no time for: they are listed as such.
  std::set<CandidateId> left_out;
  const Clock* clock = nullptr;
  std::function<void(const jobs::WorkProgress&)> progress;
};

// The result of a run. `candidates` are those that were listed, by the worker's
// index, also when the worker was lost.
struct RunnerOutput {
  absl::StatusOr<Tuning> tuning = absl::UnknownError("did not run");
  std::map<int, CandidateId> candidates;
  // The candidates whose results are wrong; the entries have no key and no create_time yet. They
  // are there also when the tuning failed.
  std::vector<QuarantineEntry> wrong;
  // When the budget began to run: after the wait for an idle GPU.
  std::optional<SteadyTime> began;
};

// Runs one item on an open worker, and is back when the item's budget ends at
// the latest (after the wait for an idle GPU, where one is asked for): then
// the client may be pending(), and the tuning is what is known by then. Errors
// are the client's, and NOT_FOUND with the reasons if no candidate ran.
RunnerOutput RunTuning(const RunnerInput& input, WorkerClient* client);

// Prepares, checks and times nothing but `suspect`. OK if the worker survives it, whether the
// candidate works or not. Errors are the client's.
absl::Status TryAlone(const jobs::WorkSpec& spec, const CandidateId& suspect, WorkerClient* client);

}  // namespace convtune::tuning

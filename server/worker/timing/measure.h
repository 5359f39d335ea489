// RunRounds times candidates in interleaved rounds.
#pragma once

#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/worker/backend.h"

namespace convtune::worker::timing {

struct MeasuredCandidate {
  int index = 0;
  CandidateId id;
};

struct MeasurePlan {
  std::vector<MeasuredCandidate> candidates;  // prepared
  int rounds = 0;
  int first_round = 0;  // number of the first one
  RunMode mode;
  absl::Time deadline = absl::InfiniteFuture();

  std::vector<CandidateId> ids() const;
};

struct MeasureCallbacks {
  // Before a run of another candidate than the one before.
  std::function<absl::Status(int index)> on_touch;
  // After every run.
  std::function<absl::Status(int index, int round, const absl::StatusOr<TimedRun>& run)> on_sample;
};

// Runs each candidate once per round; round n starts with the candidate at place n,
// counted around. One that fails is left out from then on. Returns
// whether the deadline, which is looked at before every run, ended it early.
// Errors are those of the callbacks.
absl::StatusOr<bool> RunRounds(BackendProblem* problem, const MeasurePlan& plan,
                               const MeasureCallbacks& callbacks);

}  // namespace convtune::worker::timing

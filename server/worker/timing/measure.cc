#include "server/worker/timing/measure.h"

#include "absl/time/clock.h"
#include "proto/base/status_macros.h"

namespace convtune::worker::timing {

std::vector<CandidateId> MeasurePlan::ids() const {
  std::vector<CandidateId> result;
  for (const MeasuredCandidate& candidate : candidates) {
    result.push_back(candidate.id);
  }
  return result;
}

absl::StatusOr<bool> RunRounds(BackendProblem* problem, const MeasurePlan& plan,
                               const MeasureCallbacks& callbacks) {
  const size_t count = plan.candidates.size();
  std::vector<bool> failed(count, false);
  int touched = -1;
  for (int round = plan.first_round; round < plan.first_round + plan.rounds; ++round) {
    for (size_t k = 0; k < count; ++k) {
      const size_t i = (k + static_cast<size_t>(round)) % count;
      if (failed[i]) continue;
      if (absl::Now() >= plan.deadline) return true;
      const MeasuredCandidate& candidate = plan.candidates[i];
      if (touched != candidate.index) {
        RETURN_IF_ERROR(callbacks.on_touch(candidate.index));
        touched = candidate.index;
      }
      const absl::StatusOr<TimedRun> run = problem->Run(candidate.id, plan.mode);
      failed[i] = !run.ok();
      RETURN_IF_ERROR(callbacks.on_sample(candidate.index, round, run));
    }
  }
  return false;
}

}  // namespace convtune::worker::timing

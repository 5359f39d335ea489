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
  const auto run = [&](size_t i, absl::StatusOr<TimedRun>* result) -> absl::Status {
    const MeasuredCandidate& candidate = plan.candidates[i];
    if (touched != candidate.index) {
      RETURN_IF_ERROR(callbacks.on_touch(candidate.index));
      touched = candidate.index;
    }
    *result = problem->Run(candidate.id, plan.mode);
    failed[i] = !result->ok();
    return absl::OkStatus();
  };

  absl::StatusOr<TimedRun> timed = TimedRun();
  std::vector<absl::StatusOr<TimedRun>> warm(count, TimedRun());
  for (size_t i = 0; i < count; ++i) {
    for (int n = 0; n < plan.warmups && !failed[i]; ++n) {
      if (absl::Now() >= plan.deadline) {
        // Better than nothing: each one's last warm-up stands in for a sample.
        for (size_t k = 0; k < i; ++k) {
          if (!failed[k]) {
            RETURN_IF_ERROR(
                callbacks.on_sample(plan.candidates[k].index, plan.first_round, warm[k]));
          }
        }
        return true;
      }
      RETURN_IF_ERROR(run(i, &timed));
      warm[i] = timed;
    }
    if (failed[i]) {
      RETURN_IF_ERROR(callbacks.on_sample(plan.candidates[i].index, plan.first_round, timed));
    }
  }
  for (int round = plan.first_round; round < plan.first_round + plan.rounds; ++round) {
    for (size_t k = 0; k < count; ++k) {
      const size_t i = (k + static_cast<size_t>(round)) % count;
      if (failed[i]) {
        continue;
      }
      if (absl::Now() >= plan.deadline) {
        return true;
      }
      RETURN_IF_ERROR(run(i, &timed));
      RETURN_IF_ERROR(callbacks.on_sample(plan.candidates[i].index, round, timed));
    }
  }
  return false;
}

}  // namespace convtune::worker::timing

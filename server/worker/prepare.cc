#include "server/worker/prepare.h"

#include <algorithm>
#include <variant>

#include "absl/time/clock.h"
#include "proto/base/mutex.h"
#include "proto/base/status_macros.h"
#include "server/worker/lanes.h"

namespace convtune {
namespace {

// Hands candidates out to lanes until something ends it.
class Preparation {
 public:
  Preparation(BackendProblem* problem, const PreparePlan& plan, const PrepareCallbacks& callbacks)
      : problem_(problem), plan_(plan), callbacks_(callbacks) {}

  void Run(const std::vector<MeasuredCandidate>& candidates, int lanes) {
    {
      MutexLock lock(mutex_);
      next_ = candidates.data();
      end_ = next_ + candidates.size();
    }
    RunOnLanes(std::min(lanes, std::max(1, static_cast<int>(candidates.size()))), [this](int lane) {
      while (const MeasuredCandidate* candidate = Take()) {
        const absl::Time start = absl::Now();
        const absl::StatusOr<PreparedCandidate> result = problem_->Prepare(candidate->id, lane);
        Report(candidate->index, result, absl::Now() - start);
      }
    });
  }

  absl::StatusOr<bool> Result() {
    MutexLock lock(mutex_);
    RETURN_IF_ERROR(status_);
    return out_of_time_;
  }

 private:
  // The next candidate, which is touched; null when there is no more to do.
  const MeasuredCandidate* Take() {
    MutexLock lock(mutex_);
    const bool enough = plan_.stop_after > 0 && succeeded_ >= plan_.stop_after;
    if (!status_.ok() || out_of_time_ || enough || next_ == end_) {
      return nullptr;
    }
    if (absl::Now() >= plan_.deadline) {
      out_of_time_ = true;
      return nullptr;
    }
    status_ = callbacks_.on_touch(next_->index);
    return status_.ok() ? next_++ : nullptr;
  }

  void Report(int index, const absl::StatusOr<PreparedCandidate>& result,
              absl::Duration build_time) {
    MutexLock lock(mutex_);
    succeeded_ += result.ok() && !result->over_memory ? 1 : 0;
    if (status_.ok()) {
      status_ = callbacks_.on_prepared(index, result, build_time);
    }
  }

  BackendProblem* const problem_;
  const PreparePlan& plan_;
  const PrepareCallbacks& callbacks_;
  Mutex mutex_;
  const MeasuredCandidate* next_ GUARDED_BY(mutex_) = nullptr;
  const MeasuredCandidate* end_ GUARDED_BY(mutex_) = nullptr;
  int succeeded_ GUARDED_BY(mutex_) = 0;
  bool out_of_time_ GUARDED_BY(mutex_) = false;
  absl::Status status_ GUARDED_BY(mutex_);
};

}  // namespace

absl::StatusOr<bool> PrepareAll(BackendProblem* problem, const PreparePlan& plan,
                                const PrepareCallbacks& callbacks) {
  Preparation preparation(problem, plan, callbacks);
  if (plan.lanes <= 1 || plan.stop_after > 0) {
    preparation.Run(plan.candidates, 1);
    return preparation.Result();
  }
  std::vector<MeasuredCandidate> legacy, plans;
  for (const MeasuredCandidate& candidate : plan.candidates) {
    (std::holds_alternative<LegacyAlgorithm>(candidate.id) ? legacy : plans).push_back(candidate);
  }
  preparation.Run(legacy, 1);
  preparation.Run(plans, plan.lanes);
  return preparation.Result();
}

}  // namespace convtune

// A SuspectJudge finds out whether a worker was lost for the candidate that it was
// touching.
#pragma once

#include <functional>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/base/cancel_token.h"
#include "proto/model/tuning/candidate.h"
#include "proto/model/tuning/tuning.h"
#include "server/jobs/work_spec.h"
#include "server/supervisor/worker_client.h"

namespace convtune::devices {

// Kills from outside after which a candidate, or a work item, is tried again.
inline constexpr int kOutsideKills = 5;

// When the judging ends though it is not through.
struct JudgeLimits {
  absl::Time end = absl::InfiniteFuture();
  std::function<bool()> gives_way;  // see WorkerClient::SetGivesWay
};

// Tries candidates alone. Of one device's thread.
class SuspectJudge {
 public:
  // The device's worker.
  struct Worker {
    // One that is alive and has no open problem. UNAVAILABLE or CANCELLED.
    std::function<absl::StatusOr<supervisor::WorkerClient*>()> get;
    // Takes note of its loss and drops it.
    std::function<supervisor::WorkerLoss()> take_loss;
    // Ends one that is still at work.
    std::function<void()> end;
    const CancelToken* cancel = nullptr;
  };

  explicit SuspectJudge(Worker worker) : worker_(std::move(worker)) {}

  // The quarantine entry of the suspect, if it takes a worker down alone
  // as well. Errors: DEADLINE_EXCEEDED at the limits, and those of Worker::get.
  absl::StatusOr<std::optional<QuarantineEntry>> Judge(const jobs::WorkSpec& spec,
                                                       const CandidateId& suspect,
                                                       const JudgeLimits& limits) const;

 private:
  const Worker worker_;
};

// For what a candidate is quarantined that a worker of this checker version was
// lost for, in a tuning with this budget. Without key and time.
QuarantineEntry Blame(const CandidateId& candidate, const supervisor::WorkerLoss& loss,
                      absl::Duration budget, int checker_version);

}  // namespace convtune::devices

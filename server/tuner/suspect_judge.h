// Which of the candidates that a lost worker was touching it was lost for.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/model/candidate.h"
#include "proto/model/tuning.h"
#include "server/tuner/cancel_token.h"
#include "server/tuner/tuning_queue.h"
#include "server/tuner/worker_client.h"

namespace convtune {

// When the judging ends though it is not through.
struct JudgeLimits {
  absl::Time end = absl::InfiniteFuture();
  std::function<bool()> gives_way;  // see WorkerClient::SetGivesWay
};

struct SuspectVerdict {
  // Those that took a worker down alone as well.
  std::map<CandidateId, QuarantineEntry> guilty;
  std::vector<CandidateId> unjudged;
};

// Tries candidates alone. Of one device's thread.
class SuspectJudge {
 public:
  // The device's worker.
  struct Worker {
    // One that is alive and has no open problem. UNAVAILABLE or CANCELLED.
    std::function<absl::StatusOr<WorkerClient*>()> get;
    // Takes note of its loss and drops it.
    std::function<WorkerLoss()> take_loss;
    // Ends one that is still at work.
    std::function<void()> end;
    const CancelToken* cancel = nullptr;
  };

  explicit SuspectJudge(Worker worker) : worker_(std::move(worker)) {}

  // Tries one after the other. Whatever it returns, `verdict` has what was found
  // out, and what was not. Errors: DEADLINE_EXCEEDED at the limits, and those of
  // Worker::get.
  absl::Status Judge(const WorkSpec& spec, const std::vector<CandidateId>& suspects,
                     const JudgeLimits& limits, SuspectVerdict* verdict) const;

 private:
  // What it is quarantined for if it takes the worker down by itself.
  absl::StatusOr<std::optional<QuarantineEntry>> TryAlone(const WorkSpec& spec,
                                                          const CandidateId& suspect,
                                                          const JudgeLimits& limits) const;

  const Worker worker_;
};

// For what a candidate is quarantined that a worker of this checker version was
// lost for, in a tuning with this budget. Without key and time.
QuarantineEntry Blame(const CandidateId& candidate, const WorkerLoss& loss, absl::Duration budget,
                      int checker_version);

}  // namespace convtune

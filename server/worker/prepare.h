// Plans, several at a time.
#pragma once

#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/worker/backend.h"
#include "server/worker/measure.h"

namespace convtune {

struct PreparePlan {
  std::vector<MeasuredCandidate> candidates;
  int lanes = 1;
  int stop_after = 0;  // so many that may run; 0: all
  absl::Time deadline = absl::InfiniteFuture();
};

// Called by one thread at a time, but not always by the same.
struct PrepareCallbacks {
  std::function<absl::Status(int index)> on_touch;
  std::function<absl::Status(int index, const absl::StatusOr<PreparedCandidate>& result,
                             absl::Duration build_time)>
      on_prepared;
};

// Prepares the candidates in their order: legacy algorithms, and all where
// stop_after is set, one after another; plans on as many lanes as are asked
// for. Returns whether the deadline, which is looked at before each, ended it
// early. Errors are those of the callbacks.
absl::StatusOr<bool> PrepareAll(BackendProblem* problem, const PreparePlan& plan,
                                const PrepareCallbacks& callbacks);

}  // namespace convtune

// A WorkSpec is a piece of work for a device: a problem, and what is done with it.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/model/enums.h"
#include "proto/model/problem/conv_problem.h"
#include "proto/model/tuning/digest.h"

namespace convtune::jobs {

enum class Search { kHeuristics = 1, kExhaustive = 2 };
// kIdle is the daemon's own, and of callers that have gone: below every caller's.
enum class Priority { kIdle = 0, kBackground = 1, kInteractive = 2 };

struct TuningOptions {
  absl::Duration time_budget = absl::Seconds(30);
  int64_t memory_budget_bytes = 0;  // 0: what the device has free
  int max_candidates = 0;           // 0: no limit
  Search search = Search::kHeuristics;
  Api api = Api::kAny;
  // Longest wait, before the time budget begins, for a GPU that no other
  // process uses.
  absl::Duration wait_idle = absl::ZeroDuration();
  bool all_timings = false;  // see TimeSecondary
  bool list_only = false;    // the work is kListAll
};

// The work on a problem, from the least to the most. kFirstConfigs: prepare the first
// configs of the heuristic list. kListAll: prepare all listed candidates. kTune: also
// time them, if there is a GPU.
enum class WorkKind { kFirstConfigs = 1, kListAll = 2, kTune = 3 };

struct WorkSpec {
  ConvProblem problem;
  TuningKey key;
  WorkKind kind = WorkKind::kTune;
  TuningOptions options;
  // It replaces a stored tuning of equal evidence, whichever has more samples.
  bool force = false;
};

// The outcome of a work item. OK: a tuning is published under the key.
struct WorkResult {
  absl::Status status;
  bool persisted = true;  // see Committer::Commit
};

struct WorkProgress {
  int candidates_done = 0;
  int candidates_total = 0;
};

}  // namespace convtune::jobs

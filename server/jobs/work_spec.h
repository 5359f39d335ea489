// A WorkSpec is a piece of work for a device: a problem, and what is done with it.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/model/enums.h"
#include "proto/model/environment.h"
#include "proto/model/problem/conv_problem.h"
#include "proto/model/tuning/candidate.h"

namespace convtune::jobs {

enum class Search { kHeuristics = 1, kExhaustive = 2 };
// kIdle is for the daemon's own work, and for that of callers that have gone: it waits behind every
// caller's.
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
  bool all_timings = false;  // with all launches and cache states
  bool list_only = false;    // the work is kListAll
};

// What happens to a problem that has no answer which the caller takes.
enum class OnMiss { kNone = 1, kHeuristic = 2, kEnqueue = 3, kTune = 4 };

// A Demand says which answers a caller takes, and what happens where there is none.
struct Demand {
  OnMiss on_miss = OnMiss::kNone;
  Evidence min_evidence = Evidence::kNone;  // kNone: the default of on_miss
  // A tuning of this age or older is no answer, and makes way for a new one of equal
  // evidence. A pin has no age. Zero: no tuning that is there is new enough.
  absl::Duration max_age = absl::InfiniteDuration();
  Constraints constraints = {};
  TuningOptions options = {};  // of the tunings that it starts

  bool wants_tuning() const { return on_miss == OnMiss::kEnqueue || on_miss == OnMiss::kTune; }
  bool limits_age() const { return max_age != absl::InfiniteDuration(); }
  // A tuning that was made then, or before, is too old at `now`. Where no tuning is new
  // enough, not even one that another node's clock dates ahead of `now` is.
  absl::Time OldestAt(absl::Time now) const {
    if (!limits_age()) return absl::InfinitePast();
    return max_age > absl::ZeroDuration() ? now - max_age : absl::InfiniteFuture();
  }
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

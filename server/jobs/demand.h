// A Demand says which answers a caller takes, and what happens where there is none.
#pragma once

#include "absl/time/time.h"
#include "proto/model/enums.h"
#include "proto/model/tuning/constraints.h"
#include "server/jobs/work_spec.h"

namespace convtune::jobs {

// What happens to a problem that has no answer which the caller takes.
enum class OnMiss { kNone = 1, kHeuristic = 2, kEnqueue = 3, kTune = 4 };

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

}  // namespace convtune::jobs

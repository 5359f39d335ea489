// An EvidenceCensus counts tunings by environment and evidence, with their age.
#pragma once

#include <map>
#include <string>

#include "absl/time/time.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"
#include "proto/model/enums.h"
#include "server/tuner/tuner.h"

namespace convtune::metrics {

// Value type.
struct EnvironmentCensus {
  std::map<Evidence, int64_t> tunings;    // by their evidence
  std::map<Origin, int64_t> origins;      // and by where they came from
  absl::Time oldest = absl::UnixEpoch();  // tune times; meaningful if there are tunings
  absl::Time median = absl::UnixEpoch();
};

// Reads every tuning's head, so a scrape gets what is at most `max_age` old.
// Thread-safe; look-ups do not wait for it.
class EvidenceCensus {
 public:
  // `tuner` outlives it.
  explicit EvidenceCensus(tuner::Tuner* tuner, absl::Duration max_age = absl::Minutes(1))
      : tuner_(tuner), max_age_(max_age) {}

  // By the environment's name.
  std::map<std::string, EnvironmentCensus> Get();

 private:
  std::map<std::string, EnvironmentCensus> Count() const;

  tuner::Tuner* const tuner_;
  const absl::Duration max_age_;
  Mutex mutex_;
  std::map<std::string, EnvironmentCensus> counted_ GUARDED_BY(mutex_);
  SteadyTime count_time_ GUARDED_BY(mutex_) = SteadyTime::InfinitePast();
};

}  // namespace convtune::metrics

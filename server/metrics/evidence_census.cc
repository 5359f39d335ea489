#include "server/metrics/evidence_census.h"

#include <algorithm>
#include <vector>

namespace convtune::metrics {
std::map<std::string, EnvironmentCensus> EvidenceCensus::Get() {
  const SteadyTime now = SteadyTime::Now();
  MutexLock lock(mutex_);
  if (now >= count_time_ + max_age_) {
    counted_ = Count();
    count_time_ = now;
  }
  return counted_;
}

std::map<std::string, EnvironmentCensus> EvidenceCensus::Count() const {
  std::map<std::string, EnvironmentCensus> all;
  std::map<std::string, std::vector<absl::Time>> times;
  TuningKey after;
  bool more = true;
  while (more) {
    const absl::StatusOr<lookup::TuningPage> page =
        tuner_->ListTunings("", /*page_size=*/1000, after, "");
    if (!page.ok()) break;
    for (const auto& indexed : page->tunings) {
      const std::string& environment = indexed->EnvironmentName();
      EnvironmentCensus& census = all[environment];
      ++census.tunings[indexed->tuning.evidence];
      ++census.origins[indexed->tuning.origin];
      times[environment].push_back(indexed->tuning.tune_time);
    }
    more = page->more;
    if (more) after = page->last();
  }
  for (auto& [name, of] : times) {
    const auto middle = of.begin() + static_cast<ptrdiff_t>(of.size() / 2);
    std::nth_element(of.begin(), middle, of.end());
    all[name].median = *middle;
    all[name].oldest = *std::min_element(of.begin(), of.end());
  }
  return all;
}

}  // namespace convtune::metrics

#include "server/metrics/evidence_census.h"

#include <algorithm>

namespace convtune::metrics {
namespace {

constexpr int kPageSize = 1000;

}  // namespace

std::vector<EnvironmentCensus> EvidenceCensus::Get() {
  const SteadyTime now = SteadyTime::Now();
  MutexLock lock(mutex_);
  if (now >= count_time_ + max_age_) {
    counted_ = Count();
    count_time_ = now;
  }
  return counted_;
}

std::vector<EnvironmentCensus> EvidenceCensus::Count() const {
  std::map<std::string, EnvironmentCensus> all;
  std::map<std::string, std::vector<absl::Time>> times;
  TuningKey after;
  bool more = true;
  while (more) {
    const absl::StatusOr<lookup::TuningPage> page = tuner_->ListTunings("", kPageSize, after, "");
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
  std::vector<EnvironmentCensus> list;
  for (auto& [name, census] : all) {
    std::vector<absl::Time>& of = times[name];
    const auto middle = of.begin() + static_cast<ptrdiff_t>(of.size() / 2);
    std::nth_element(of.begin(), middle, of.end());
    census.environment = name;
    census.median = *middle;
    census.oldest = *std::min_element(of.begin(), of.end());
    list.push_back(std::move(census));
  }
  return list;
}

}  // namespace convtune::metrics

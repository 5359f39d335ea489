// The part of the agent that is done now and then, and what it says of itself.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "db/fleet_retention.h"
#include "db/fleet_upgrades.h"
#include "proto/base/status_macros.h"
#include "server/fleet/agent.h"

namespace convtune {
namespace {

constexpr absl::Duration kUpkeepEvery = absl::Minutes(10);

}  // namespace

absl::Status Agent::Upkeep() {
  std::string here;
  for (const auto& [text, place] : places_)
    absl::StrAppend(&here, text, " ", place.driver_version, "\n");
  const bool changed = here != verified_;
  if (!changed && absl::Now() < next_upkeep_) return absl::OkStatus();
  if (options_.verify_upgrades) RETURN_IF_ERROR(VerifyUpgrades());
  verified_ = here;
  next_upkeep_ = absl::Now() + kUpkeepEvery;
  ASSIGN_OR_RETURN(const std::optional<Thinned> thinned, ThinFleetDaily(*postgres_, options_.keep));
  if (thinned.has_value()) {
    options_.log(absl::StrCat("thinned: ", thinned->evidence, " superseded tunings, ",
                              thinned->tasks, " ended tasks, ", thinned->payloads,
                              " pooled tunings that nothing refers to"));
  }
  return absl::OkStatus();
}

absl::Status Agent::VerifyUpgrades() {
  for (const auto& [text, place] : places_) {
    ASSIGN_OR_RETURN(const int64_t queued, QueueVerification(*postgres_, *names_, place.environment,
                                                             place.driver_version));
    if (queued > 0) {
      options_.log(absl::StrCat(queued, " problems of ", place.name, " are to be verified"));
    }
  }
  return absl::OkStatus();
}

absl::Duration Agent::OutboxLag() const {
  return std::max(absl::Now() - waiting_since_, absl::ZeroDuration());
}

void Agent::ShowMetrics(bool failed) {
  if (failed) ++counts_.failed_turns;
  counts_.connected = postgres_ != nullptr && postgres_->ok();
  if (!failed) counts_.last_exchange = absl::Now();
  counts_.outbox_depth = state_.outbox_depth();
  counts_.outbox_dropped = state_.outbox_dropped();
  counts_.outbox_lag = OutboxLag();
  counts_.tasks_running = static_cast<int64_t>(running_.size());
  counts_.release = state_.release();
  const MutexLock lock(metrics_mutex_);
  metrics_ = counts_;
}

metrics::AgentMetrics Agent::Metrics() const {
  const MutexLock lock(metrics_mutex_);
  return metrics_;
}

}  // namespace convtune

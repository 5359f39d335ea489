#include "client/fleet/agent.h"

#include <algorithm>
#include <utility>

#include "proto/monitoring/family_builder.h"

namespace convtune::fleet {
MetricsServer::Collect AgentFamilies(std::function<AgentMetrics()> read) {
  return [read = std::move(read)] {
    const AgentMetrics m = read();
    FamilyBuilder families;
    families.Gauge("convtune_fleet_connected", "1 if the agent has a connection to PostgreSQL",
                   m.connected ? 1 : 0);
    // Never: no time, so that no alert takes it for one.
    if (m.last_exchange != absl::InfinitePast()) {
      families.Gauge("convtune_fleet_last_exchange_timestamp_seconds",
                     "When PostgreSQL answered the agent last",
                     absl::ToDoubleSeconds(m.last_exchange - absl::UnixEpoch()));
    }
    families.Gauge("convtune_fleet_outbox_depth", "Tunings that wait to be delivered",
                   m.outbox_depth);
    // As it is now: the agent may be waiting for PostgreSQL.
    families.Gauge(
        "convtune_fleet_outbox_lag_seconds",
        "Time since when something has waited and nothing was delivered",
        absl::ToDoubleSeconds(std::max(SteadyTime::Now() - m.waiting_since, absl::ZeroDuration())));
    families.Counter("convtune_fleet_outbox_dropped_total",
                     "Tunings that the outbox's bound dropped", m.outbox_dropped);
    families.Counter("convtune_fleet_delivered_total", "Tunings that were delivered", m.delivered);
    families.Counter("convtune_fleet_refused_total",
                     "Tunings that broke a rule and were not delivered, since the daemon's start",
                     m.refused);
    families.Counter("convtune_fleet_failures_total", "Turns of the agent that failed",
                     m.failed_turns);
    families.Counter("convtune_fleet_tasks_claimed_total", "Queued problems that this node took",
                     m.tasks_claimed);
    families.Counter("convtune_fleet_tasks_done_total", "Queued problems that this node tuned",
                     m.tasks_done);
    families.Counter("convtune_fleet_tasks_failed_total", "Queued problems that failed here",
                     m.tasks_failed);
    families.Gauge("convtune_fleet_tasks_running", "Queued problems that are being tuned here",
                   m.tasks_running);
    families.Gauge("convtune_fleet_release", "The release that the node serves, 0 for none",
                   m.release);
    families.Gauge("convtune_fleet_unheeded_decisions",
                   "The release, pins and bans of the fleet that the node does not follow yet, as "
                   "of the last time that it read them",
                   m.unheeded_decisions);
    families.Gauge("convtune_fleet_refused_decisions",
                   "Releases, pins and bans that the node refuses, since they were changed after "
                   "they were decided, cannot be read or are not signed as the agent requires",
                   m.refused_decisions);
    families.Counter("convtune_fleet_went_back_total",
                     "Times that the node went back to an older release, since PostgreSQL did not "
                     "know the one that it served",
                     m.went_back);
    return families.Take();
  };
}

}  // namespace convtune::fleet

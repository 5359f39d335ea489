// AgentMetrics are what a fleet's agent counts for Prometheus.
#pragma once

#include <cstdint>
#include <functional>

#include "absl/time/time.h"
#include "proto/base/clock.h"
#include "proto/monitoring/metrics_server.h"

namespace convtune::fleet {

// One moment of an agent. Value type.
struct AgentMetrics {
  bool connected = false;                           // to PostgreSQL
  absl::Time last_exchange = absl::InfinitePast();  // that PostgreSQL answered; past: never
  int64_t outbox_depth = 0;
  // Since when something has waited without a delivery; future: nothing waits.
  SteadyTime waiting_since = SteadyTime::InfiniteFuture();
  int64_t outbox_dropped = 0;
  int64_t refused = 0;    // since the daemon's start: they break a rule
  int64_t delivered = 0;  // since the agent's start, like the rest
  int64_t failed_turns = 0;
  int64_t tasks_claimed = 0;
  int64_t tasks_done = 0;
  int64_t tasks_failed = 0;
  int64_t tasks_running = 0;
  int64_t release = 0;
  int64_t unheeded_decisions = 0;  // now
  int64_t refused_decisions = 0;   // now
};

// `read` is called for each scrape, on the server's threads.
MetricsServer::Collect AgentFamilies(std::function<AgentMetrics()> read);

}  // namespace convtune::fleet

// An AgentMetricsServer serves metrics of a fleet's agent to Prometheus.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace convtune::metrics {

// One moment of an agent. Value type.
struct AgentMetrics {
  bool connected = false;                           // to PostgreSQL
  absl::Time last_exchange = absl::InfinitePast();  // that PostgreSQL answered; past: never
  int64_t outbox_depth = 0;
  // Since when something has waited without a delivery; future: nothing waits.
  absl::Time waiting_since = absl::InfiniteFuture();
  int64_t outbox_dropped = 0;
  int64_t delivered = 0;  // since the agent's start, like the rest
  int64_t failed_turns = 0;
  int64_t tasks_claimed = 0;
  int64_t tasks_done = 0;
  int64_t tasks_failed = 0;
  int64_t tasks_running = 0;
  int64_t release = 0;
};

// Serves GET /metrics on threads of its own.
class AgentMetricsServer {
 public:
  // `read` is called on those threads. Errors as MetricsServer::Create().
  static absl::StatusOr<std::unique_ptr<AgentMetricsServer>> Create(
      const std::string& address, std::function<AgentMetrics()> read);
  virtual ~AgentMetricsServer() = default;
  virtual std::string url() const = 0;
};

}  // namespace convtune::metrics

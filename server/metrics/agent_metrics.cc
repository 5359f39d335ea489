#include "server/metrics/agent_metrics.h"

#include <algorithm>
#include <exception>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "prometheus/collectable.h"
#include "prometheus/exposer.h"
#include "prometheus/metric_family.h"
#include "server/metrics/metrics_address.h"

namespace convtune::metrics {
namespace {

using prometheus::MetricType;

class AgentFamilies final : public prometheus::Collectable {
 public:
  explicit AgentFamilies(std::function<AgentMetrics()> read) : read_(std::move(read)) {}

  std::vector<prometheus::MetricFamily> Collect() const override {
    const AgentMetrics m = read_();
    std::vector<prometheus::MetricFamily> families;
    const auto add = [&](MetricType type, const char* name, const char* help, double value) {
      prometheus::ClientMetric metric;
      (type == MetricType::Counter ? metric.counter.value : metric.gauge.value) = value;
      families.push_back({name, help, type, {metric}});
    };
    const auto gauge = [&](const char* name, const char* help, double value) {
      add(MetricType::Gauge, name, help, value);
    };
    const auto counter = [&](const char* name, const char* help, int64_t value) {
      add(MetricType::Counter, name, help, static_cast<double>(value));
    };
    gauge("convtune_fleet_connected", "1 if the agent has a connection to PostgreSQL",
          m.connected ? 1 : 0);
    // Never: no time, so that no alert takes it for one.
    if (m.last_exchange != absl::InfinitePast()) {
      gauge("convtune_fleet_last_exchange_timestamp_seconds",
            "When PostgreSQL answered the agent last",
            absl::ToDoubleSeconds(m.last_exchange - absl::UnixEpoch()));
    }
    gauge("convtune_fleet_outbox_depth", "Tunings that wait to be delivered",
          static_cast<double>(m.outbox_depth));
    // As it is now: the agent may be waiting for PostgreSQL.
    gauge("convtune_fleet_outbox_lag_seconds",
          "Time since when something has waited and nothing was delivered",
          absl::ToDoubleSeconds(std::max(absl::Now() - m.waiting_since, absl::ZeroDuration())));
    counter("convtune_fleet_outbox_dropped_total", "Tunings that the outbox's bound dropped",
            m.outbox_dropped);
    counter("convtune_fleet_delivered_total", "Tunings that were delivered", m.delivered);
    counter("convtune_fleet_failures_total", "Turns of the agent that failed", m.failed_turns);
    counter("convtune_fleet_tasks_claimed_total", "Queued problems that this node took",
            m.tasks_claimed);
    counter("convtune_fleet_tasks_done_total", "Queued problems that this node tuned",
            m.tasks_done);
    counter("convtune_fleet_tasks_failed_total", "Queued problems that failed here",
            m.tasks_failed);
    gauge("convtune_fleet_tasks_running", "Queued problems that are being tuned here",
          static_cast<double>(m.tasks_running));
    gauge("convtune_fleet_release", "The release that the node serves, 0 for none",
          static_cast<double>(m.release));
    return families;
  }

 private:
  const std::function<AgentMetrics()> read_;
};

class PrometheusAgentServer final : public AgentMetricsServer {
 public:
  PrometheusAgentServer(const std::string& address, std::function<AgentMetrics()> read)
      : families_(std::make_shared<AgentFamilies>(std::move(read))),
        exposer_({"listening_ports", address, "num_threads", "2", "request_timeout_ms", "10000"}),
        url_(absl::StrCat("http://", address.substr(0, address.rfind(':')), ":",
                          exposer_.GetListeningPorts().at(0), "/metrics")) {
    exposer_.RegisterCollectable(families_);
  }
  std::string url() const override { return url_; }

 private:
  const std::shared_ptr<AgentFamilies> families_;
  prometheus::Exposer exposer_;
  const std::string url_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<AgentMetricsServer>> AgentMetricsServer::Create(
    const std::string& address, std::function<AgentMetrics()> read) {
  if (address.empty()) return absl::InvalidArgumentError("--metrics-address: is empty");
  if (const absl::Status status = ValidateMetricsAddress(address); !status.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--metrics-address: ", std::string(status.message())));
  }
  try {
    return std::make_unique<PrometheusAgentServer>(address, std::move(read));
  } catch (const std::exception& e) {
    return absl::UnavailableError(
        absl::StrCat("--metrics-address: cannot listen on ", address, ": ", e.what()));
  }
}

}  // namespace convtune::metrics

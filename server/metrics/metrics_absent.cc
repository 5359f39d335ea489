// What this folder does where prometheus-cpp is not there.
#include "server/metrics/agent_metrics.h"
#include "server/metrics/families.h"

namespace convtune::metrics {

bool MetricsBuilt() { return false; }

absl::StatusOr<std::unique_ptr<MetricsServer>> MetricsServer::Create(const std::string&, Collect) {
  return absl::UnimplementedError(
      "--metrics-address: this program was built without prometheus-cpp");
}

MetricsServer::Collect AgentFamilies(std::function<AgentMetrics()>) { return nullptr; }
MetricsServer::Collect DaemonFamilies(const MetricsSources&) { return nullptr; }

}  // namespace convtune::metrics

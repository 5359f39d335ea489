// Where prometheus-cpp is not there.
#include "server/metrics/agent_metrics.h"

namespace convtune::metrics {

absl::StatusOr<std::unique_ptr<AgentMetricsServer>> AgentMetricsServer::Create(
    const std::string& /*address*/, std::function<AgentMetrics()> /*read*/) {
  return absl::UnimplementedError(
      "--metrics-address: this convtune-fleet was built without prometheus-cpp");
}

}  // namespace convtune::metrics

#include "client/fleet/agent_metrics.h"

namespace convtune::fleet {
MetricsServer::Collect AgentFamilies(std::function<AgentMetrics()>) { return nullptr; }
}  // namespace convtune::fleet

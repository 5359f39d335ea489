#include "client/fleet/agent.h"

namespace convtune::fleet {
MetricsServer::Collect AgentFamilies(std::function<std::vector<AgentMetric>()>) { return nullptr; }
}  // namespace convtune::fleet

#include "client/fleet/agent.h"

namespace convtune::fleet {
MetricsServer::Collect AgentFamilies(std::function<AgentMetrics()>) { return nullptr; }
}  // namespace convtune::fleet

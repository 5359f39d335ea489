#include <string_view>
#include <utility>

#include "client/fleet/agent.h"
#include "proto/monitoring/family_builder.h"

namespace convtune::fleet {
MetricsServer::Collect AgentFamilies(std::function<std::vector<AgentMetric>()> read) {
  return [read = std::move(read)] {
    FamilyBuilder families;
    for (const AgentMetric& metric : read()) {
      const bool is_counter = std::string_view(metric.name).ends_with("_total");
      families.Begin(is_counter ? prometheus::MetricType::Counter : prometheus::MetricType::Gauge,
                     metric.name, metric.help);
      families.Add(metric.value);
    }
    return families.Take();
  };
}

}  // namespace convtune::fleet

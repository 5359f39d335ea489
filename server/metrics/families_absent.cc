#include "server/metrics/families.h"

namespace convtune::metrics {
MetricsServer::Collect DaemonFamilies(const MetricsSources&) { return nullptr; }
}  // namespace convtune::metrics

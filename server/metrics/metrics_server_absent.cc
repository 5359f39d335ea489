// In the place of metrics_server.cc where prometheus-cpp is not there.
#include "server/metrics/metrics_server.h"

namespace convtune::metrics {

bool MetricsBuilt() { return false; }

absl::StatusOr<std::unique_ptr<MetricsServer>> MetricsServer::Create(const std::string&,
                                                                     const Sources&) {
  return absl::UnimplementedError(
      "--metrics-address: this convtuned was built without prometheus-cpp");
}

}  // namespace convtune::metrics

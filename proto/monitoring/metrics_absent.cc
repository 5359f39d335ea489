// What metrics_server.cc has, where prometheus-cpp is not there.
#include "proto/monitoring/metrics_server.h"

namespace convtune {

bool MetricsBuilt() { return false; }

absl::StatusOr<std::unique_ptr<MetricsServer>> MetricsServer::Create(const std::string&, Collect) {
  return absl::UnimplementedError(
      "--metrics-address: this program was built without prometheus-cpp");
}

}  // namespace convtune

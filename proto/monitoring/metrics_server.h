// A MetricsServer serves metrics to Prometheus.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace prometheus {
struct MetricFamily;
}  // namespace prometheus

namespace convtune {

// False where prometheus-cpp was not there when this was built.
bool MetricsBuilt();

// OK for IP:PORT ("127.0.0.1:9464", "[::1]:9464", port 0 for any that is free) and
// for an empty text, which means none. INVALID_ARGUMENT says the rule. Pure function.
absl::Status ValidateMetricsAddress(const std::string& text);

// Serves GET /metrics on threads of its own, with the counts of this process's log (LostLines)
// beside what it is given. There is no encryption and no authentication.
class MetricsServer {
 public:
  using Collect = std::function<std::vector<prometheus::MetricFamily>()>;

  // `collect` is called on those threads, once for each request. `address`: see
  // ValidateMetricsAddress, not empty. INVALID_ARGUMENT: it is no address;
  // FAILED_PRECONDITION: it cannot be listened on; UNIMPLEMENTED: !MetricsBuilt().
  static absl::StatusOr<std::unique_ptr<MetricsServer>> Create(const std::string& address,
                                                               Collect collect);
  // Answers what is asked at the time, then listens no longer.
  virtual ~MetricsServer() = default;

  // "http://127.0.0.1:9464/metrics", with the port that was given for 0.
  virtual std::string url() const = 0;
};

// A Metric is one number for Prometheus: a counter where its name ends with _total, else a gauge.
// Value type.
struct Metric {
  Metric(const char* named, const char* about, auto number)
      : name(named), help(about), value(static_cast<double>(number)) {}

  const char* name;
  const char* help;
  double value;
};
// Collects what `read` returns, which is called for each request. nullptr: !MetricsBuilt().
MetricsServer::Collect NewCollect(std::function<std::vector<Metric>()> read);

}  // namespace convtune

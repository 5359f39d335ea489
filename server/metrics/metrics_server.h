// A MetricsServer serves the daemon's metrics to Prometheus.
//
// This folder turns counters into Prometheus's text. It may include tuner, rpc,
// db and proto, and is the only one that includes prometheus-cpp.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "db/tuning_store.h"
#include "proto/base/clock.h"
#include "server/devices/gpu_health.h"
#include "server/metrics/metrics_address.h"
#include "server/tuner/tuner.h"

namespace convtune::metrics {

// False where prometheus-cpp was not there when this was built.
bool MetricsBuilt();

// Serves GET /metrics on threads of its own. What it reads are the counters that
// the parts keep anyway: nothing is counted for a scrape alone. There is no
// encryption and no authentication; no metric names a problem.
class MetricsServer {
 public:
  struct Sources {
    tuner::Tuner* tuner = nullptr;  // these four outlive the server
    db::TuningStore* store = nullptr;
    const Clock* clock = nullptr;
    const devices::GpuHealth* gpus = nullptr;  // may be nullptr
  };

  // `address`: see ValidateMetricsAddress, not empty. INVALID_ARGUMENT: it is
  // none; UNAVAILABLE: it cannot be listened on; UNIMPLEMENTED: !MetricsBuilt().
  static absl::StatusOr<std::unique_ptr<MetricsServer>> Create(const std::string& address,
                                                               const Sources& sources);
  // Answers what is asked at the time, then listens no longer.
  virtual ~MetricsServer() = default;

  // "http://127.0.0.1:9464/metrics", with the port that was given for 0.
  virtual std::string url() const = 0;
};

}  // namespace convtune::metrics

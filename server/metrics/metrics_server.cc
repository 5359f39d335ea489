#include "server/metrics/metrics_server.h"

#include <exception>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "prometheus/collectable.h"
#include "prometheus/exposer.h"
#include "server/metrics/evidence_census.h"
#include "server/metrics/families.h"
#include "server/rpc/services/call_stats.h"

namespace convtune::metrics {
namespace {

class DaemonMetrics final : public prometheus::Collectable {
 public:
  explicit DaemonMetrics(const MetricsServer::Sources& sources)
      : sources_(sources),
        start_time_(sources.clock->Now()),
        census_(sources.tuner, sources.clock) {}

  std::vector<prometheus::MetricFamily> Collect() const override {
    MetricsInput input;
    input.version = CONVTUNE_VERSION;
    input.now = sources_.clock->Now();
    input.start_time = start_time_;
    input.stats = sources_.tuner->Stats();
    input.devices = sources_.tuner->ListDevices();
    if (sources_.gpus != nullptr) input.gpus = sources_.gpus->List();
    input.census = census_.Get();
    input.calls = rpc::services::CallStats::Global().Snapshot();
    input.database_bytes = sources_.store->SizeBytes();
    if (release::ReleaseManager* releases = sources_.tuner->releases(); releases != nullptr) {
      input.publication = releases->Status();
    }
    return MakeFamilies(input);
  }

 private:
  const MetricsServer::Sources sources_;
  const absl::Time start_time_;
  mutable EvidenceCensus census_;
};

class PrometheusServer final : public MetricsServer {
 public:
  PrometheusServer(const std::string& address, const Sources& sources)
      : metrics_(std::make_shared<DaemonMetrics>(sources)),
        // Two threads: one slow reader does not keep others out.
        exposer_({"listening_ports", address, "num_threads", "2", "request_timeout_ms", "10000"}),
        url_(absl::StrCat("http://", address.substr(0, address.rfind(':')), ":",
                          exposer_.GetListeningPorts().at(0), "/metrics")) {
    exposer_.RegisterCollectable(metrics_);
  }

  std::string url() const override { return url_; }

 private:
  const std::shared_ptr<DaemonMetrics> metrics_;
  prometheus::Exposer exposer_;
  const std::string url_;
};

}  // namespace

bool MetricsBuilt() { return true; }

absl::StatusOr<std::unique_ptr<MetricsServer>> MetricsServer::Create(const std::string& address,
                                                                     const Sources& sources) {
  if (address.empty()) return absl::InvalidArgumentError("--metrics-address: is empty");
  if (const absl::Status status = ValidateMetricsAddress(address); !status.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--metrics-address: ", std::string(status.message())));
  }
  try {
    return std::make_unique<PrometheusServer>(address, sources);
  } catch (const std::exception& e) {
    return absl::UnavailableError(
        absl::StrCat("--metrics-address: cannot listen on ", address, ": ", e.what()));
  }
}

}  // namespace convtune::metrics

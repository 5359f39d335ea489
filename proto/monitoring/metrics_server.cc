#include "proto/monitoring/metrics_server.h"

#include <exception>
#include <utility>

#include "absl/strings/str_cat.h"
#include "prometheus/collectable.h"
#include "prometheus/exposer.h"
#include "prometheus/metric_family.h"

namespace convtune {
namespace {

class Families final : public prometheus::Collectable {
 public:
  explicit Families(MetricsServer::Collect collect) : collect_(std::move(collect)) {}
  std::vector<prometheus::MetricFamily> Collect() const override { return collect_(); }

 private:
  const MetricsServer::Collect collect_;
};

class PrometheusServer final : public MetricsServer {
 public:
  PrometheusServer(const std::string& address, Collect collect)
      : families_(std::make_shared<Families>(std::move(collect))),
        // A slow client keeps a thread for a request's time-out at most; whoever comes meanwhile
        // has another one, or waits for it.
        exposer_({"listening_ports", address, "num_threads", "16", "request_timeout_ms", "2000"}),
        url_(absl::StrCat("http://", address.substr(0, address.rfind(':')), ":",
                          exposer_.GetListeningPorts().at(0), "/metrics")) {
    exposer_.RegisterCollectable(families_);
  }

  std::string url() const override { return url_; }

 private:
  const std::shared_ptr<Families> families_;
  prometheus::Exposer exposer_;
  const std::string url_;
};

}  // namespace

bool MetricsBuilt() { return true; }

absl::StatusOr<std::unique_ptr<MetricsServer>> MetricsServer::Create(const std::string& address,
                                                                     Collect collect) {
  if (address.empty()) return absl::InvalidArgumentError("--metrics-address: is empty");
  if (const absl::Status status = ValidateMetricsAddress(address); !status.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--metrics-address: ", std::string(status.message())));
  }
  try {
    return std::make_unique<PrometheusServer>(address, std::move(collect));
  } catch (const std::exception& e) {
    return absl::FailedPreconditionError(
        absl::StrCat("--metrics-address: cannot listen on ", address,
                     ": another program does, or this machine or user may not (", e.what(), ")"));
  }
}

}  // namespace convtune

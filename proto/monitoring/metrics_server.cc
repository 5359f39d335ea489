#include "proto/monitoring/metrics_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <exception>
#include <string_view>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#ifdef CONVTUNE_PROMETHEUS
#include "prometheus/collectable.h"
#include "prometheus/exposer.h"
#include "prometheus/metric_family.h"
#include "proto/monitoring/family_builder.h"
#include "proto/monitoring/lost_lines.h"
#endif

namespace convtune {
namespace {

bool IsAddress(int family, const std::string& text) {
  in6_addr bytes{};
  return inet_pton(family, text.c_str(), &bytes) == 1;
}

}  // namespace

absl::Status ValidateMetricsAddress(const std::string& text) {
  if (text.empty()) return absl::OkStatus();
  const size_t colon = text.rfind(':');
  const std::string host = text.substr(0, colon);
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  int port = -1;
  const bool ip =
      bracketed ? IsAddress(AF_INET6, host.substr(1, host.size() - 2)) : IsAddress(AF_INET, host);
  if (colon == std::string::npos || !ip || !absl::SimpleAtoi(text.substr(colon + 1), &port) ||
      port < 0 || port > 65535) {
    return absl::InvalidArgumentError(
        absl::StrCat("must be IP:PORT such as 127.0.0.1:9464 or [::1]:9464, is ", text));
  }
  return absl::OkStatus();
}

#ifdef CONVTUNE_PROMETHEUS
namespace {

class Families final : public prometheus::Collectable {
 public:
  explicit Families(MetricsServer::Collect collect) : collect_(std::move(collect)) {}
  std::vector<prometheus::MetricFamily> Collect() const override {
    std::vector<prometheus::MetricFamily> all = collect_();
    FamilyBuilder families;
    families.Begin(prometheus::MetricType::Counter, "convtune_log_lost_lines_total",
                   "Lines of the log that could not be written, or that nobody read in time");
    const log::Lost lost = log::LostLines();
    families.Add(lost.audit, {{"kind", "audit"}});
    families.Add(lost.others, {{"kind", "other"}});
    all.push_back(std::move(families.Take().front()));
    return all;
  }

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

MetricsServer::Collect NewCollect(std::function<std::vector<Metric>()> read) {
  return [read = std::move(read)] {
    FamilyBuilder families;
    for (const Metric& metric : read()) {
      const bool is_counter = std::string_view(metric.name).ends_with("_total");
      families.Begin(is_counter ? prometheus::MetricType::Counter : prometheus::MetricType::Gauge,
                     metric.name, metric.help);
      families.Add(metric.value);
    }
    return families.Take();
  };
}

#else

bool MetricsBuilt() { return false; }

MetricsServer::Collect NewCollect(std::function<std::vector<Metric>()>) { return nullptr; }

absl::StatusOr<std::unique_ptr<MetricsServer>> MetricsServer::Create(const std::string&, Collect) {
  return absl::UnimplementedError(
      "--metrics-address: this program was built without prometheus-cpp");
}

#endif

}  // namespace convtune

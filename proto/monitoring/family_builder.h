// A FamilyBuilder puts Prometheus's metric families together; one without samples is
// left out.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "prometheus/metric_family.h"
#include "proto/base/histogram.h"

namespace convtune {

// Not thread-safe.
class FamilyBuilder {
 public:
  // The family that Counter, Gauge and Histogram add to from now on.
  void Begin(prometheus::MetricType type, const char* name, const char* help) {
    End();
    family_ = {name, help, type, {}};
  }

  template <typename Number>
  void Add(Number value, std::vector<prometheus::ClientMetric::Label> labels = {}) {
    prometheus::ClientMetric metric;
    metric.label = std::move(labels);
    if (family_.type == prometheus::MetricType::Counter) {
      metric.counter.value = static_cast<double>(value);
    } else {
      metric.gauge.value = static_cast<double>(value);
    }
    family_.metric.push_back(std::move(metric));
  }

  // Nanoseconds become seconds.
  void Add(const HistogramSnapshot& snapshot, std::vector<prometheus::ClientMetric::Label> labels) {
    prometheus::ClientMetric metric;
    metric.label = std::move(labels);
    auto& histogram = metric.histogram;
    constexpr double kNanosecondsPerSecond = 1e9;
    uint64_t below = 0;
    for (size_t i = 0; i < snapshot.bounds.size(); ++i) {
      below += static_cast<uint64_t>(snapshot.counts[i]);
      histogram.bucket.push_back(
          {below, static_cast<double>(snapshot.bounds[i]) / kNanosecondsPerSecond});
    }
    histogram.sample_count = static_cast<uint64_t>(snapshot.count());
    histogram.sample_sum = static_cast<double>(snapshot.sum) / kNanosecondsPerSecond;
    family_.metric.push_back(std::move(metric));
  }

  template <typename Number>
  void Counter(const char* name, const char* help, Number value) {
    Begin(prometheus::MetricType::Counter, name, help);
    Add(value);
  }
  template <typename Number>
  void Gauge(const char* name, const char* help, Number value) {
    Begin(prometheus::MetricType::Gauge, name, help);
    Add(value);
  }

  std::vector<prometheus::MetricFamily> Take() {
    End();
    return std::move(families_);
  }

 private:
  void End() {
    if (!family_.metric.empty()) families_.push_back(std::move(family_));
    family_ = {};
  }

  prometheus::MetricFamily family_;
  std::vector<prometheus::MetricFamily> families_;
};

}  // namespace convtune

#include "server/rpc/services/call_stats.h"

#include <algorithm>
#include <array>
#include <atomic>

#include "absl/strings/str_cat.h"
#include "google/protobuf/descriptor.h"
#include "server/rpc/services/fleet_service.h"
#include "server/rpc/services/services.h"

namespace convtune::rpc::services {
namespace {

constexpr size_t kStatusCodes = 17;  // gRPC's

// gRFC A66's latency buckets, in nanoseconds.
// clang-format off
constexpr std::array<int64_t, 41> kLatencyBounds = {
    0, 10'000, 50'000, 100'000, 300'000, 600'000, 800'000, 1'000'000, 2'000'000, 3'000'000, 4'000'000,
    5'000'000, 6'000'000, 8'000'000, 10'000'000, 13'000'000, 16'000'000, 20'000'000, 25'000'000,
    30'000'000, 40'000'000, 50'000'000, 65'000'000, 80'000'000, 100'000'000, 130'000'000, 160'000'000,
    200'000'000, 250'000'000, 300'000'000, 400'000'000, 500'000'000, 650'000'000, 800'000'000,
    1'000'000'000, 2'000'000'000, 5'000'000'000, 10'000'000'000, 20'000'000'000, 50'000'000'000,
    100'000'000'000};
// clang-format on

}  // namespace

struct CallStats::Method {
  explicit Method(std::string full) : name(std::move(full)) {}

  // Made when a status first occurs: most never do.
  Histogram& Of(absl::StatusCode code) {
    const auto number = static_cast<size_t>(code);
    std::atomic<Histogram*>& slot = by_status[number < kStatusCodes ? number : 2];  // UNKNOWN
    Histogram* found = slot.load(std::memory_order_acquire);
    if (found != nullptr) return *found;
    auto made = std::make_unique<Histogram>(kLatencyBounds);
    if (slot.compare_exchange_strong(found, made.get(), std::memory_order_acq_rel)) {
      return *made.release();
    }
    return *found;
  }

  ~Method() {
    for (const auto& slot : by_status) delete slot.load();
  }

  const std::string name;
  std::atomic<int64_t> started{0};
  std::array<std::atomic<Histogram*>, kStatusCodes> by_status{};
};

CallStats& CallStats::Global() {
  static auto* const stats =
      new CallStats({kTuningServiceName, kMaintenanceServiceName, kReleaseServiceName,
                     kBundleServiceName, kFleetServiceName});
  return *stats;
}

CallStats::CallStats(const std::vector<std::string>& services) {
  const auto* pool = google::protobuf::DescriptorPool::generated_pool();
  for (const std::string& service : services) {
    const auto* descriptor = pool->FindServiceByName(service);
    for (int i = 0; descriptor != nullptr && i < descriptor->method_count(); ++i) {
      const std::string& name = descriptor->method(i)->name();
      methods_.push_back(std::make_unique<Method>(absl::StrCat(service, "/", name)));
      by_name_[name] = methods_.back().get();
    }
  }
  methods_.push_back(std::make_unique<Method>("other"));
}

CallStats::~CallStats() = default;

CallStats::Method& CallStats::Find(std::string_view method) const {
  const auto found = by_name_.find(absl::string_view(method.data(), method.size()));
  return found == by_name_.end() ? *methods_.back() : *found->second;
}

void CallStats::Started(std::string_view method) {
  Find(method).started.fetch_add(1, std::memory_order_relaxed);
}

void CallStats::Ended(std::string_view method, absl::StatusCode code, absl::Duration duration) {
  Find(method).Of(code).Record(absl::ToInt64Nanoseconds(duration));
}

std::vector<MethodStats> CallStats::Snapshot() const {
  std::vector<MethodStats> all;
  for (const auto& method : methods_) {
    MethodStats stats;
    stats.method = method->name;
    stats.started = method->started.load(std::memory_order_relaxed);
    if (stats.started == 0) continue;
    for (size_t code = 0; code < kStatusCodes; ++code) {
      const Histogram* histogram = method->by_status[code].load(std::memory_order_acquire);
      if (histogram == nullptr) continue;
      stats.ended.push_back(
          {absl::StatusCodeToString(static_cast<absl::StatusCode>(code)), histogram->Snapshot()});
    }
    all.push_back(std::move(stats));
  }
  std::sort(all.begin(), all.end(),
            [](const MethodStats& a, const MethodStats& b) { return a.method < b.method; });
  return all;
}

}  // namespace convtune::rpc::services

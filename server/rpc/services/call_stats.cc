#include "server/rpc/services/call_stats.h"

#include <array>

#include "absl/status/status.h"

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

CallStats& CallStats::Global() {
  static auto* const stats = new CallStats;
  return *stats;
}

CallStats::Method& CallStats::Find(std::string_view method) {
  const auto found = methods_.find(method);
  return found != methods_.end() ? found->second : methods_[std::string(method)];
}

void CallStats::Started(std::string_view method) {
  MutexLock lock(mutex_);
  ++Find(method).started;
}

void CallStats::Ended(std::string_view method, absl::StatusCode code, absl::Duration duration) {
  const bool is_known = static_cast<size_t>(code) < kStatusCodes;
  MutexLock lock(mutex_);
  Find(method)
      .ended.try_emplace(is_known ? code : absl::StatusCode::kUnknown, kLatencyBounds)
      .first->second.Record(absl::ToInt64Nanoseconds(duration));
}

std::map<std::string, MethodStats> CallStats::Snapshot() const {
  std::map<std::string, MethodStats> all;
  MutexLock lock(mutex_);
  for (const auto& [name, method] : methods_) {
    MethodStats& stats = all[name];
    stats.started = method.started;
    for (const auto& [code, durations] : method.ended) {
      stats.ended.emplace(code, durations.Snapshot());
    }
  }
  return all;
}

}  // namespace convtune::rpc::services

// CallStats count calls by method and status, as gRFC A66 does.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/base/histogram.h"
#include "proto/base/mutex.h"

namespace convtune::rpc::services {

// The calls of one method. Value type.
struct MethodStats {
  int64_t started = 0;  // with those that have not ended
  // Their durations in nanoseconds, by the statuses that occurred.
  std::map<absl::StatusCode, HistogramSnapshot> ended;
};

// Thread-safe.
class CallStats {
 public:
  // The process's own, which handlers count in; never destroyed.
  static CallStats& Global();

  // `method` is a full name, "convtune.v1.TuningService/BatchGet".
  void Started(std::string_view method);
  void Ended(std::string_view method, absl::StatusCode code, absl::Duration duration);

  // By the full names of the methods that were called.
  std::map<std::string, MethodStats> Snapshot() const;

 private:
  struct Method {
    int64_t started = 0;
    std::map<absl::StatusCode, Histogram> ended;  // of statuses that occurred
  };

  Method& Find(std::string_view method) REQUIRES(mutex_);

  mutable Mutex mutex_;
  std::map<std::string, Method, std::less<>> methods_ GUARDED_BY(mutex_);  // that were called
};

}  // namespace convtune::rpc::services

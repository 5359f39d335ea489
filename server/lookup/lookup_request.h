// A LookupRequest is what callers ask, a LookupResponse what they are told.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "convtune/v1/tuning_service.pb.h"
#include "proto/model/problem/conv_problem.h"
#include "proto/model/tuning/tuning.h"
#include "server/jobs/work_spec.h"

namespace convtune::lookup {

struct LookupRequest {
  std::string environment;  // name or text; empty where there is one only
  Environment program;      // what the caller has, as far as it is known; see Fits
  std::vector<ConvProblem> problems;
  jobs::Demand demand;
  bool include_hints = false;
};

// A ChangeStamp tells whether the index has changed what it knows of a problem since the
// stamp was taken. Value type; the index outlives it. Thread-safe.
class ChangeStamp {
 public:
  // Of nothing: unchanged() is false.
  ChangeStamp() = default;
  explicit ChangeStamp(const std::atomic<uint32_t>& changes)
      : changes_(&changes), seen_(changes.load(std::memory_order_acquire)) {}

  bool unchanged() const {
    return changes_ != nullptr && changes_->load(std::memory_order_acquire) == seen_;
  }

 private:
  const std::atomic<uint32_t>* changes_ = nullptr;
  uint32_t seen_ = 0;
};

struct LookupResult {
  v1::BatchGetResult row;
  // While it is unchanged, an equal request gets an equal answer. Of nothing where the
  // outcome is a miss, or may change with time alone.
  ChangeStamp stamp = {};
};

struct LookupResponse {
  std::vector<LookupResult> results;  // in request order
  Environment environment;
};

inline constexpr size_t kMissReasons = v1::MissReason_ARRAYSIZE;  // numbers of them, 0 included

using LookupCallback = std::function<void(absl::StatusOr<LookupResponse>)>;

}  // namespace convtune::lookup

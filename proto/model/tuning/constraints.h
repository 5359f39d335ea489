// Constraints on an answer, and which candidates satisfy them.
#pragma once

#include <cstdint>
#include <optional>

#include "proto/model/enums.h"
#include "proto/model/tuning/candidate.h"

namespace convtune {

// See convtune.v1.Constraints. Value type.
struct Constraints {
  std::optional<int64_t> max_workspace_bytes = std::nullopt;
  bool deterministic = false;
  bool forbid_tf32 = false;
  bool forbid_down_convert = false;
  bool forbid_winograd = false;
  bool forbid_fft = false;
  bool forbid_reduced_precision_reduction = false;
  Api api = Api::kAny;
  LaunchMode launch = LaunchMode::kEager;
  // Largest Candidate::error; one that was not compared does not keep to it.
  std::optional<double> max_error = std::nullopt;
  // Ranks by times taken in this state; nullopt: that of the tuning.
  std::optional<CacheState> cache_state = std::nullopt;
  friend bool operator==(const Constraints&, const Constraints&) = default;
};

// True if the candidate, which must be usable(), keeps to the constraints for
// inputs of type `data_type`.
bool Satisfies(const Candidate& candidate, const Constraints& constraints, DataType data_type);

}  // namespace convtune

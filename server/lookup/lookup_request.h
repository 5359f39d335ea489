// A LookupRequest is what callers ask, a LookupResponse what they are told.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/model/problem/conv_problem.h"
#include "proto/model/tuning/constraints.h"
#include "proto/model/tuning/tuning.h"
#include "server/jobs/work_spec.h"
#include "server/lookup/answer.h"

namespace convtune::lookup {

enum class OnMiss { kNone = 1, kHeuristic = 2, kEnqueue = 3, kTune = 4 };

struct LookupRequest {
  std::string environment;  // name or text; empty where there is one only
  Environment program;      // what the caller has, as far as it is known; see Fits
  std::vector<ConvProblem> problems;
  Constraints constraints;
  int64_t max_reply_bytes = 0;  // for whoever writes the reply; 0: the default
  OnMiss on_miss = OnMiss::kNone;
  Evidence min_evidence = Evidence::kNone;  // kNone: the default of on_miss
  jobs::TuningOptions options;
  bool include_hints = false;
};

// The source of an answer. The same answer is given again for as long as
// Tuner::StillHolds says so.
struct AnswerSource {
  TuningDigest digest;      // of the key
  int alignment_bytes = 0;  // of the problem
  // nullptr: the answer may change by itself, or is none.
  std::shared_ptr<const IndexedTuning> tuning = nullptr;
  std::shared_ptr<const Pin> pin = nullptr;
  // No tuning for a less strict alignment could better it.
  bool settled = false;
  bool first_configs_only = false;
  absl::Duration elapsed = absl::ZeroDuration();  // what the tuning had taken
};

struct LookupResult {
  TuningKey key;
  std::variant<Answer, Miss> outcome;
  AnswerSource source = {};
};

struct LookupResponse {
  std::vector<LookupResult> results;  // in request order
  Environment environment;
};

using LookupCallback = std::function<void(absl::StatusOr<LookupResponse>)>;

}  // namespace convtune::lookup

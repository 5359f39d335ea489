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
#include "proto/model/tuning/tuning.h"
#include "server/jobs/demand.h"
#include "server/lookup/answer.h"

namespace convtune::lookup {

struct LookupRequest {
  std::string environment;  // name or text; empty where there is one only
  Environment program;      // what the caller has, as far as it is known; see Fits
  std::vector<ConvProblem> problems;
  int64_t max_reply_bytes = 0;  // for whoever writes the reply; 0: the default
  jobs::Demand demand;
  bool include_hints = false;
};

// AnswerFacts are what a Demand is held against.
struct AnswerFacts {
  bool profile = false;  // the environment is one
  Evidence evidence = Evidence::kNone;
  bool pinned = false;
  bool first_configs_only = false;  // the tuning is
  absl::Time tune_time = absl::UnixEpoch();
  absl::Duration elapsed = absl::ZeroDuration();  // what the tuning had taken
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
  AnswerFacts facts;
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

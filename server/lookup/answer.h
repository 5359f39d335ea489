// MakeAnswer gives the answer of a tuning under constraints. Pure.
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "convtune/v1/tuning_service.pb.h"
#include "proto/model/tuning/ban.h"
#include "proto/model/tuning/constraints.h"
#include "proto/model/tuning/tuning.h"

namespace convtune::lookup {

// See convtune.v1.Answer.
struct Answer {
  Candidate winner;
  std::vector<Candidate> portfolio;
  std::vector<Candidate> runners_up;
  Evidence evidence = Evidence::kNone;
  Origin origin = Origin::kLocal;
  bool pinned = false;
  std::string pin_reason;
  std::string environment_name;
  std::string environment_text;  // of a hint
  absl::Time tune_time = absl::UnixEpoch();
  int candidate_count = 0;
  int eligible_count = 0;
  std::string tuning_id;
  bool persisted = true;
  bool stands_in = false;  // kept in memory on purpose, beside a measurement that does not hold
  bool fresh = false;
  std::string note;
  // It would be the winner, or is pinned.
  std::optional<BannedCandidate> banned = std::nullopt;
};

// convtune.v1.MissReason says what they mean.
enum class MissReason {
  kNotFound = v1::MISS_REASON_NOT_FOUND,
  kInsufficientEvidence = v1::MISS_REASON_INSUFFICIENT_EVIDENCE,
  kNoCandidate = v1::MISS_REASON_NO_CANDIDATE,
  kTuningFailed = v1::MISS_REASON_TUNING_FAILED,
  kNoDevice = v1::MISS_REASON_NO_DEVICE,
  kOtherEnvironment = v1::MISS_REASON_OTHER_ENVIRONMENT,
  kTooOld = v1::MISS_REASON_TOO_OLD
};

inline constexpr size_t kMissReasons = v1::MissReason_ARRAYSIZE;  // numbers of them, 0 included

struct Miss {
  MissReason reason = MissReason::kNotFound;
  std::string message;
  std::string job;                                       // "jobs/N" if one was queued
  std::optional<Answer> hint;                            // from an environment that differs
  std::optional<BannedCandidate> banned = std::nullopt;  // it would be the winner
};

struct IndexedTuning;

// The answer that a tuning gives under constraints, for inputs of type
// `data_type`; a Miss (kNoCandidate) if no candidate keeps to them. `pin` may
// be nullptr; an expired one is ignored, another overrides the ranking and the
// constraints, and says so.
std::variant<Answer, Miss> MakeAnswer(const IndexedTuning& indexed, const Pin* pin,
                                      const Constraints& constraints, DataType data_type,
                                      absl::Time now);

}  // namespace convtune::lookup

// A Ban is a rule, an operator's or one that came with convtune: candidates that it fits are no
// answer for the problems and environments that it names. Bans are all of them; Bans::Find is where
// they are decided.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/model/environment.h"
#include "proto/model/problem/conv_problem.h"
#include "proto/model/tuning/candidate.h"

namespace convtune {

// cuDNN versions from `start` up to but without `end`. Value type.
struct CudnnRange {
  CudnnVersion start;               // 0.0.0: from the first
  std::optional<CudnnVersion> end;  // nullopt: there is no end

  // Reads "<9.20", ">=9.12,<9.20", "9.19" and so on; empty: all. A version of one or two
  // numbers stands for all that begin with them: "9.19" and "<=9.19" hold for 9.19.1.
  static absl::StatusOr<CudnnRange> Parse(std::string_view text);
  // ">=9.12.0,<9.20.0"; empty for all.
  std::string ToText() const;
  bool Has(const CudnnVersion& version) const;
  friend bool operator==(const CudnnRange&, const CudnnRange&) = default;
};

// `*` is any text, `?` any letter of the model's slug. Read in any form of the name:
// "NVIDIA H200" and "nvidia-h200" are the same. INVALID_ARGUMENT for other letters.
absl::StatusOr<std::string> ReadGpuGlob(std::string_view text);

// "bans/3 (wrong results)"; of a ban of the fleet "bans/3 (fleet ban 7: wrong results)" where
// it has a daemon's name, and "fleet ban 7 (wrong results)" in the fleet itself.
std::string BanNameAndReason(std::string_view name, int64_t fleet_ban, std::string_view reason);

// Value type.
struct Ban {
  // The daemon's number, never given twice; 0: no daemon keeps the ban. Bans that came with
  // convtune, which are in no store, have kShipped + 1 and so on, all below 0 (ShippedBans).
  static constexpr int64_t kShipped = -1'000'000;
  int64_t number = 0;
  int64_t fleet_ban = 0;  // the fleet's number of it; 0: it was made on the daemon
  CandidatePattern candidate;
  CudnnRange cudnn;
  // As ReadGpuGlob gives it, of the model or of the compute capability ("sm-120"); empty: any.
  std::string gpu;
  std::optional<Operation> operation;  // nullopt: any, as the next two
  std::optional<DataType> data_type;   // of the inputs
  std::optional<TensorLayout> layout;
  int spatial_rank = 0;  // 2 or 3 dimensions; 0: any. Only bans that came with convtune have one
  std::string author;
  std::string reason;
  absl::Time create_time = absl::UnixEpoch();
  std::optional<absl::Time> expire_time;

  bool shipped() const { return number < 0; }
  // "bans/3", "shipped/1", or "fleet ban 7" where no daemon keeps it.
  std::string Name() const;
  // See BanNameAndReason.
  std::string NameAndReason() const;
  // INVALID_ARGUMENT if it would expire within a second.
  absl::Status CheckExpiry(absl::Time now) const;
  // True if both ban the same, by whomever and for however long.
  bool HasRuleOf(const Ban& other) const;
  friend bool operator==(const Ban&, const Ban&) = default;
};

// Immutable. Bans that have expired are not in it: whoever keeps it takes them out.
class Bans {
 public:
  using Shared = std::shared_ptr<const Ban>;

  Bans() = default;
  explicit Bans(std::vector<Shared> bans) : bans_(std::move(bans)) {}

  // Those that hold for the problem and the environment of the key, whatever the candidate.
  Bans Of(const TuningKey& key) const;
  // The first that fits the candidate; nullptr: it is not banned. REQUIRES: *this is what Of gave.
  Shared Find(const CandidateId& candidate) const;
  // The same for any key.
  Shared Find(const CandidateId& candidate, const TuningKey& key) const {
    return empty() ? nullptr : Of(key).Find(candidate);
  }

  // These and `added`.
  Bans With(const std::vector<Ban>& added) const;
  Bans With(const Ban& added) const { return With(std::vector<Ban>{added}); }
  // ALREADY_EXISTS if one of them has the ban's rule; RESOURCE_EXHAUSTED if there are `most`
  // beside those that came with convtune.
  absl::Status CheckIsNew(const Ban& ban, size_t most) const;

  bool empty() const { return bans_.empty(); }
  // By ascending number.
  const std::vector<Shared>& all() const { return bans_; }

 private:
  std::vector<Shared> bans_;
};

// The bans that come with convtune, "shipped/1" and so on, of the errata of note_rules.h. Each
// reason names where the fault is described.
std::vector<Ban> ShippedBans();

}  // namespace convtune

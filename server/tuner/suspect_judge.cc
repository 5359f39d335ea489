#include "server/tuner/suspect_judge.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "proto/base/status_macros.h"
#include "server/tuner/suspect_runner.h"

namespace convtune {
namespace {

// Kills from outside after which a candidate is tried again.
constexpr int kOutsideKills = 5;

bool Over(const JudgeLimits& limits) {
  return absl::Now() >= limits.end || (limits.gives_way && limits.gives_way());
}

}  // namespace

QuarantineEntry Blame(const CandidateId& candidate, const WorkerLoss& loss, absl::Duration budget,
                      int checker_version) {
  QuarantineEntry entry;
  entry.candidate = candidate;
  entry.checker_version = checker_version;
  if (!loss.hung) {
    entry.reason = QuarantineReason::kCrashed;
    entry.message = absl::StrCat("took its worker down twice: ", loss.reason);
    return entry;
  }
  absl::string_view how = loss.reason;
  if (!absl::ConsumePrefix(&how, "hung: ")) absl::ConsumePrefix(&how, "hung ");
  entry.reason = QuarantineReason::kHung;
  entry.hang_budget = budget;
  entry.message = absl::StrCat("hung with a budget of ", absl::FormatDuration(budget), ": ", how);
  return entry;
}

absl::StatusOr<std::optional<QuarantineEntry>> SuspectJudge::Judge(
    const WorkSpec& spec, const CandidateId& suspect, const JudgeLimits& limits) const {
  for (int kills = 0; kills <= kOutsideKills; ++kills) {
    if (Over(limits)) return absl::DeadlineExceededError("there is no more time");
    ASSIGN_OR_RETURN(WorkerClient* const client, worker_.get());
    const int checker_version = client->hello().checker_version();
    client->SetEnd(limits.end);
    client->SetGivesWay(limits.gives_way);
    // The worker survives it, or there is a loss; whether it works is no matter.
    const absl::Status status = RunAlone(spec, suspect, client);
    client->SetEnd(absl::InfiniteFuture());
    client->SetGivesWay(nullptr);
    if (client->pending()) {
      worker_.end();
      return status;
    }
    if (!client->loss()) return std::nullopt;
    const WorkerLoss loss = worker_.take_loss();
    if (worker_.cancel->cancelled()) return absl::CancelledError("cancelled");
    if (loss.killed_from_outside) continue;
    if (!loss.suspect) return std::nullopt;
    return std::make_optional(Blame(suspect, loss, spec.options.time_budget, checker_version));
  }
  return std::nullopt;
}

}  // namespace convtune

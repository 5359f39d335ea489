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
// It is kept in the database, and read back: see HangBudget.
constexpr char kHung[] = "hung with a budget of ";

bool Over(const JudgeLimits& limits) {
  return absl::Now() >= limits.end || (limits.gives_way && limits.gives_way());
}

}  // namespace

std::string QuarantineReason(const WorkerLoss& loss, absl::Duration budget) {
  if (!loss.hung) return absl::StrCat("took its worker down twice: ", loss.reason);
  absl::string_view how = loss.reason;
  if (!absl::ConsumePrefix(&how, "hung: ")) absl::ConsumePrefix(&how, "hung ");
  return absl::StrCat(kHung, absl::FormatDuration(budget), ": ", how);
}

std::optional<absl::Duration> HangBudget(const std::string& reason) {
  absl::string_view text = reason;
  if (!absl::ConsumePrefix(&text, kHung)) return std::nullopt;
  absl::Duration budget;
  if (!absl::ParseDuration(text.substr(0, text.find(':')), &budget)) return std::nullopt;
  return budget;
}

absl::StatusOr<std::optional<WorkerLoss>> SuspectJudge::TryAlone(const WorkSpec& spec,
                                                                 const CandidateId& suspect,
                                                                 const JudgeLimits& limits) const {
  for (int kills = 0; kills <= kOutsideKills; ++kills) {
    if (Over(limits)) return absl::DeadlineExceededError("there is no more time");
    ASSIGN_OR_RETURN(WorkerClient* const client, worker_.get());
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
    WorkerLoss loss = worker_.take_loss();
    if (worker_.cancel->cancelled()) return absl::CancelledError("cancelled");
    if (loss.killed_from_outside) continue;
    if (!loss.suspect) return std::nullopt;
    return std::optional<WorkerLoss>(std::move(loss));
  }
  return std::nullopt;
}

absl::StatusOr<std::optional<std::string>> SuspectJudge::Judge(const WorkSpec& spec,
                                                               const CandidateId& suspect,
                                                               const JudgeLimits& limits) const {
  ASSIGN_OR_RETURN(const std::optional<WorkerLoss> loss, TryAlone(spec, suspect, limits));
  if (!loss) return std::nullopt;
  return QuarantineReason(*loss, spec.options.time_budget);
}

}  // namespace convtune

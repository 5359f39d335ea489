#include "server/devices/suspect_judge.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "proto/base/status_macros.h"
#include "server/tuning/worker_requests.h"

namespace convtune::devices {
namespace {

bool Over(const JudgeLimits& limits) {
  return absl::Now() >= limits.end || (limits.gives_way && limits.gives_way());
}

// Prepares, checks and times nothing but `suspect`. OK if the worker survives it,
// whether the candidate works or not.
absl::Status RunAlone(const jobs::WorkSpec& spec, const CandidateId& suspect,
                      supervisor::WorkerClient* client) {
  const bool measures = client->measures();
  std::optional<int> found;
  worker::v1::OpenProblem open = tuning::OpenRequest(spec, measures);
  // The other API's listing takes time, and the legacy one runs what it lists.
  if (ApiOf(suspect) == Api::kGraph) {
    open.set_legacy_api(false);
  } else {
    open.set_graph_api(false);
  }
  RETURN_IF_ERROR(client
                      ->OpenProblem(open,
                                    [&](const worker::v1::Listed& listed) {
                                      const auto candidate = tuning::ReadListed(listed.candidate());
                                      if (candidate && candidate->id == suspect) {
                                        found = listed.index();
                                      }
                                    })
                      .status());
  if (!found) return client->CloseProblem();
  const int64_t budget_ms = absl::ToInt64Milliseconds(spec.options.time_budget);
  bool ready = false;
  worker::v1::Prepare prepare;
  prepare.add_indexes(*found);
  prepare.set_time_budget_ms(budget_ms);
  RETURN_IF_ERROR(
      client->Prepare(prepare, [&ready](const worker::v1::Prepared& p) { ready = p.ok(); })
          .status());
  if (ready && measures && spec.kind == jobs::WorkKind::kTune) {
    worker::v1::Check check;
    check.add_indexes(*found);
    check.set_time_budget_ms(budget_ms);
    RETURN_IF_ERROR(client->Check(check, [](const worker::v1::Checked&) {}).status());
    worker::v1::Measure measure;
    measure.add_indexes(*found);
    measure.set_rounds(3);
    measure.set_time_budget_ms(budget_ms);
    RETURN_IF_ERROR(client
                        ->Measure(
                            measure, [](const worker::v1::Sample&) {}, [](const v1::Conditions&) {})
                        .status());
  }
  return client->CloseProblem();
}

}  // namespace

QuarantineEntry Blame(const CandidateId& candidate, const supervisor::WorkerLoss& loss,
                      absl::Duration budget, int checker_version) {
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
    const jobs::WorkSpec& spec, const CandidateId& suspect, const JudgeLimits& limits) const {
  for (int kills = 0; kills <= kOutsideKills; ++kills) {
    if (Over(limits)) return absl::DeadlineExceededError("there is no more time");
    ASSIGN_OR_RETURN(supervisor::WorkerClient* const client, worker_.get());
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
    const supervisor::WorkerLoss loss = worker_.take_loss();
    if (worker_.cancel->cancelled()) return absl::CancelledError("cancelled");
    if (loss.killed_from_outside) continue;
    if (!loss.suspect) return std::nullopt;
    return std::make_optional(Blame(suspect, loss, spec.options.time_budget, checker_version));
  }
  return std::nullopt;
}

}  // namespace convtune::devices

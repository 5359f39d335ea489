// The part of the agent that tunes what the fleet has queued.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/base/status_macros.h"
#include "server/fleet/agent.h"

namespace convtune {
namespace {

constexpr int kRenewals = 3;  // within a lease

}  // namespace

absl::Status Agent::WorkOnTasks() {
  for (size_t i = 0; i < running_.size();) {
    bool ended = false;
    RETURN_IF_ERROR(TendTask(&running_[i], &ended));
    if (ended) {
      running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(i));
      next_claim_ = absl::InfinitePast();
    } else {
      ++i;
    }
  }
  if (!options_.tune || absl::Now() < next_claim_) return absl::OkStatus();
  // Where nothing is announced: work of a node that did not come back.
  next_claim_ = absl::Now() + options_.refresh;
  return ClaimMore();
}

absl::Status Agent::TendTask(RunningTask* running, bool* ended) {
  v1::GetTuningJobRequest request;
  request.set_name(running->job);
  const absl::StatusOr<v1::TuningJob> job = daemon_->GetTuningJob(request);
  if (absl::IsNotFound(job.status())) {
    // Another daemon than the one that was asked: it was started again.
    *ended = true;
    return ReturnTask(*postgres_, running->task).status();
  }
  RETURN_IF_ERROR(job.status());
  switch (job->state()) {
    case v1::JOB_STATE_SUCCEEDED:
      // The fleet has the result before the task is done.
      RETURN_IF_ERROR(Push());
      RETURN_IF_ERROR(CompleteTask(*postgres_, running->task).status());
      *ended = true;
      ++counts_.tasks_done;
      return absl::OkStatus();
    case v1::JOB_STATE_FAILED:
      *ended = true;
      ++counts_.tasks_failed;
      return FailTask(*postgres_, running->task,
                      job->failures_size() > 0 ? job->failures(0) : "no candidate ran")
          .status();
    case v1::JOB_STATE_CANCELLED:
      *ended = true;
      return ReturnTask(*postgres_, running->task).status();
    default:
      break;
  }
  if (absl::Now() < running->renew) return absl::OkStatus();
  running->renew = absl::Now() + options_.lease / kRenewals;
  ASSIGN_OR_RETURN(const bool still_ours, RenewTask(*postgres_, running->task, options_.lease));
  if (still_ours) return absl::OkStatus();
  *ended = true;
  v1::CancelTuningJobRequest cancel;
  cancel.set_name(running->job);
  return daemon_->CancelTuningJob(cancel).status();
}

absl::Status Agent::ClaimMore() {
  std::vector<int64_t> environments;
  int64_t room = 0;
  for (const auto& entry : places_) {
    const Place& place = entry.second;
    const auto busy = std::count_if(running_.begin(), running_.end(), [&](const auto& running) {
      return running.task.environment_id == place.id;
    });
    if (busy >= place.devices) continue;
    environments.push_back(place.id);
    room += place.devices - busy;
  }
  if (environments.empty()) return absl::OkStatus();
  // What this node's own callers want goes first.
  ASSIGN_OR_RETURN(const v1::ServerInfo info, daemon_->GetServerInfo());
  if (info.queue_depth() > 0 || info.waiting_callers() > 0) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::vector<FleetTask> tasks,
                   ClaimTasks(*postgres_, node_id_, environments, room, options_.lease));
  counts_.tasks_claimed += static_cast<int64_t>(tasks.size());
  for (const FleetTask& task : tasks) RETURN_IF_ERROR(StartTask(task));
  return absl::OkStatus();
}

absl::Status Agent::StartTask(const FleetTask& task) {
  const Place* const place = FindPlace(task.environment_id);
  if (place == nullptr) return ReturnTask(*postgres_, task).status();
  v1::CreateTuningJobRequest request;
  request.set_environment(place->name);
  request.add_problems()->set_text(task.problem_text);
  request.set_priority(v1::PRIORITY_BACKGROUND);
  request.set_force(task.kind == BatchKind::kVerify);
  request.set_request_id(absl::StrCat("fleet-", task.task_id, "-", task.token));
  const int64_t millis = absl::ToInt64Milliseconds(task.budget);
  auto* const budget = request.mutable_options()->mutable_time_budget();
  budget->set_seconds(millis / 1000);
  budget->set_nanos(static_cast<int32_t>(millis % 1000 * 1'000'000));
  const absl::StatusOr<v1::TuningJob> job = daemon_->CreateTuningJob(request);
  if (!job.ok()) {
    if (absl::IsUnavailable(job.status())) return ReturnTask(*postgres_, task).status();
    return FailTask(*postgres_, task, std::string(job.status().message())).status();
  }
  running_.push_back({task, job->name(), absl::Now() + options_.lease / kRenewals});
  return absl::OkStatus();
}

void Agent::GiveTasksBack() {
  for (const RunningTask& running : running_) {
    v1::CancelTuningJobRequest cancel;
    cancel.set_name(running.job);
    daemon_->CancelTuningJob(cancel).status().IgnoreError();
    // Without a word its lease runs out.
    if (postgres_ != nullptr && postgres_->ok()) {
      ReturnTask(*postgres_, running.task).status().IgnoreError();
    }
  }
  running_.clear();
}

}  // namespace convtune

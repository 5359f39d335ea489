// DeviceRunner: one item, and what is left to do when it is answered.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/base/status_macros.h"
#include "server/tuner/device_runner.h"
#include "spdlog/spdlog.h"

namespace convtune {
namespace {

// What a tuning has left at least after it lost a worker, so that it is answered
// with what can be known by then.
constexpr absl::Duration kLastAttempt = absl::Seconds(1);

// Says when what is late has to give way: the queue is shut, or other work waits
// for long.
class Patience {
 public:
  Patience(const TuningQueue* queue, absl::Duration patience)
      : queue_(queue), patience_(patience) {}

  bool Over() {
    if (queue_->shut()) return true;
    const absl::Time now = absl::Now();
    waits_since_ = queue_->depth() > 0 ? std::min(waits_since_, now) : absl::InfiniteFuture();
    return now - waits_since_ >= patience_;
  }

 private:
  const TuningQueue* const queue_;
  const absl::Duration patience_;
  absl::Time waits_since_ = absl::InfiniteFuture();
};

}  // namespace

absl::StatusOr<std::optional<QuarantineEntry>> DeviceRunner::Judge(const WorkSpec& spec,
                                                                   const CandidateId& suspect,
                                                                   const JudgeLimits& limits) {
  ASSIGN_OR_RETURN(std::optional<QuarantineEntry> entry, judge_.Judge(spec, suspect, limits));
  if (entry) Quarantine(spec.key, *entry);
  return entry;
}

void DeviceRunner::Quarantine(const TuningKey& key, QuarantineEntry entry) {
  entry.key = key;
  entry.create_time = options_.clock->Now();
  spdlog::warn("{}: quarantined {} of {} ({}): {}", options_.device.name, ToText(entry.candidate),
               key.problem_text, Name(entry.reason), entry.message);
  options_.committer->Quarantine(entry);
}

void DeviceRunner::LiftOutlived(const Tuning& tuning, absl::Duration budget,
                                const WorkerClient& client) {
  const bool has_gpu = client.hello().has_gpu();
  const auto was_tried = [has_gpu](CandidateStatus status) {
    // A plan that was only built has not been run.
    if (status == CandidateStatus::kFinalized) return !has_gpu;
    return status != CandidateStatus::kSkippedBudget && status != CandidateStatus::kQuarantined &&
           status != CandidateStatus::kUnjudged;
  };
  const auto lifted = [&](const QuarantineEntry& entry) {
    if (entry.HoldsFor(budget, client.hello().checker_version())) return false;
    return std::any_of(tuning.candidates.begin(), tuning.candidates.end(), [&](const Candidate& c) {
      return c.id == entry.candidate && was_tried(c.status);
    });
  };
  const absl::Status status = options_.committer->LiftQuarantine(tuning.key, lifted);
  if (!status.ok()) spdlog::error("could not lift a quarantine: {}", status.ToString());
}

bool DeviceRunner::FinishPending(const std::function<bool()>& gives_way, Late* late) {
  client_->SetGivesWay(gives_way);
  const absl::Status status = client_->FinishPending(absl::InfiniteFuture());
  if (status.ok()) client_->CloseProblem().IgnoreError();
  if (client_->pending()) {
    client_.reset();
    return false;
  }
  client_->SetGivesWay(nullptr);
  if (!client_->loss()) return true;
  const WorkerLoss loss = TakeLoss();
  if (loss.suspect && !loss.killed_from_outside) {
    const auto suspect = late->candidates.find(*loss.suspect);
    if (suspect != late->candidates.end()) late->suspects.push_back(suspect->second);
  }
  return true;
}

void DeviceRunner::FinishLate(const WorkSpec& spec, Late late) {
  Patience patience(options_.queue, options_.late_patience);
  const auto gives_way = [&patience] { return patience.Over(); };
  const bool pending = client_ != nullptr && client_->pending();
  if (!pending || FinishPending(gives_way, &late)) {
    for (const CandidateId& suspect : late.suspects) {
      const auto judged = Judge(spec, suspect, {absl::InfiniteFuture(), gives_way});
      if (judged.ok()) continue;
      spdlog::info("{}: {} of {} is not tried alone: {}", options_.device.name, ToText(suspect),
                   spec.key.problem_text, judged.status().ToString());
      break;
    }
  }
  if (available_) SetState(client_ != nullptr ? DeviceState::kReady : DeviceState::kIdle);
  idle_since_ = absl::Now();
}

WorkResult DeviceRunner::Execute(const std::shared_ptr<WorkItem>& item, Late* late) {
  const TuningKey& key = item->spec.key;
  const absl::Duration budget = item->spec.options.time_budget;
  RunnerInput input{
      item->spec,
      options_.device.provenance,
      options_.committer->QuarantinedOf(key),
      {},
      options_.clock,
      [this, &item](const WorkProgress& progress) { options_.queue->Report(item, progress); }};
  int outside_kills = 0;
  int unexplained = 0;
  absl::Time end = absl::InfiniteFuture();  // of the budget, however many workers it takes
  while (true) {
    if (token_->cancelled()) return {absl::CancelledError("cancelled")};
    if (const absl::Status status = EnsureWorker(); !status.ok()) return {status};
    const int checker_version = client_->hello().checker_version();
    // A quarantine ends by a candidate's being tried: on a card, by its being run.
    const bool tries =
        !client_->hello().has_gpu() || (item->spec.kind == WorkKind::kTune && client_->measures());
    if (tries) {
      std::erase_if(input.quarantined, [budget, checker_version](const auto& entry) {
        return !entry.second.HoldsFor(budget, checker_version);
      });
    }
    const absl::Duration left = end - absl::Now();
    const bool last_attempt = left <= kLastAttempt;
    input.spec.options.time_budget = std::min(budget, std::max(left, kLastAttempt));
    const RunnerOutput output = RunTuning(input, options_.sampling, client_.get());
    late->candidates = output.candidates;
    if (end == absl::InfiniteFuture() && output.began) {
      end = *output.began + budget;
      input.spec.options.wait_idle = absl::ZeroDuration();
    }
    for (const QuarantineEntry& entry : output.wrong) {
      Quarantine(key, entry);
      input.quarantined.emplace(entry.candidate, entry);
    }
    if (output.tuning.ok()) {
      if (tries) LiftOutlived(*output.tuning, budget, *client_);
      return {absl::OkStatus(),
              options_.committer->Commit(*output.tuning, options_.device.environment, item->force)};
    }
    if (!client_->loss()) return {output.tuning.status()};
    const WorkerLoss loss = TakeLoss();
    if (token_->cancelled()) return {absl::CancelledError("cancelled")};
    if (loss.killed_from_outside) {
      if (++outside_kills > kOutsideKills) {
        return {absl::UnavailableError("the worker is killed from outside again and again")};
      }
    } else {
      const auto suspect =
          loss.suspect ? output.candidates.find(*loss.suspect) : output.candidates.end();
      const bool suspected = suspect != output.candidates.end();
      bool explained = false;
      if (suspected) {
        // Tried as in the whole item: what is slow is not to be taken for hung.
        const auto guilt = Judge(item->spec, suspect->second, {end, nullptr});
        if (guilt.ok() && *guilt) {
          input.quarantined.emplace(suspect->second, **guilt);
        } else if (absl::IsDeadlineExceeded(guilt.status())) {
          input.left_out.insert(suspect->second);
          late->suspects.push_back(suspect->second);
        } else if (!guilt.ok()) {
          return {guilt.status()};
        }
        explained = !guilt.ok() || *guilt;
      }
      if (!explained) {
        if (!suspected && input.spec.options.api == Api::kAny) {
          // The legacy search runs what it lists: the graph API may do without it.
          input.spec.options.api = Api::kGraph;
        }
        if (++unexplained > kUnexplainedDeaths) {
          return {absl::UnavailableError(absl::StrCat(
              "the worker died ", unexplained, " times, blaming no candidate: ", loss.reason))};
        }
      }
    }
    if (last_attempt) {
      return {absl::UnavailableError(
          absl::StrCat("the budget ended after the worker was lost again: ", loss.reason))};
    }
  }
}

}  // namespace convtune

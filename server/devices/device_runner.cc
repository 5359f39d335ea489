#include "server/devices/device_runner.h"

#include <array>
#include <bit>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "proto/base/status_macros.h"
#include "proto/convert/record_codec.h"
#include "proto/monitoring/log.h"

namespace convtune::devices {
namespace {

// How often a thread without work looks after its worker.
constexpr absl::Duration kTick = absl::Milliseconds(500);
// The buckets of how long work took, in nanoseconds: a heuristic takes milliseconds, a
// tuning seconds, an exhaustive one minutes.
constexpr std::array<int64_t, 14> kWorkBounds = {
    1'000'000,      5'000'000,      10'000'000,      50'000'000,       100'000'000,
    500'000'000,    1'000'000'000,  2'000'000'000,   5'000'000'000,    10'000'000'000,
    30'000'000'000, 60'000'000'000, 300'000'000'000, 1'800'000'000'000};

// Of work, before it gives way to another cuDNN of its GPU: starting a worker takes seconds.
constexpr absl::Duration kTurn = absl::Seconds(10);

// What a tuning has left at least after it lost a worker, so that it is answered
// with what can be known by then.
constexpr absl::Duration kLastAttempt = absl::Seconds(1);

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

absl::StatusOr<std::unique_ptr<DeviceRunner>> DeviceRunner::Create(Options options) {
  ASSIGN_OR_RETURN(std::unique_ptr<CancelToken> token, CancelToken::Create());
  return std::unique_ptr<DeviceRunner>(new DeviceRunner(std::move(options), std::move(token)));
}

DeviceRunner::DeviceRunner(Options options, std::unique_ptr<CancelToken> token)
    : options_(std::move(options)),
      environment_text_(options_.device.environment.ToText()),
      self_check_key_(SelfCheckCache::KeyOf(options_.device)),
      token_(std::move(token)),
      succeeded_(kWorkBounds),
      failed_(kWorkBounds),
      cancelled_(kWorkBounds),
      backoff_(options_.limits.backoff_initial) {
  status_.set_name(options_.device.name);
  status_.set_environment(options_.device.environment.Name());
  status_.set_state(v1::DEVICE_STATE_IDLE);
  status_.set_cudnn_folder(options_.device.cudnn.folder);
  self_check_ = options_.self_checks->Find(self_check_key_).passed;
  options_.queue->AddAvailable(1);
  // Whatever the worker is at then, it may never end by itself. An item that is
  // taken just now resets the token, and asks for the GPU after that.
  options_.gpu_health->SetInterrupt(options_.device.name, [this] { token_->Cancel(); });
  thread_ = std::thread([this] { Loop(); });
}

void DeviceRunner::Join() {
  options_.gpu_health->SetInterrupt(options_.device.name, nullptr);
  if (thread_.joinable()) thread_.join();
}

v1::Device DeviceRunner::Status() const {
  const absl::Status health = CheckHealth();
  MutexLock lock(mutex_);
  v1::Device status = status_;
  if (self_check_.known()) *status.mutable_self_check() = ToProto(self_check_);
  if (!health.ok()) {
    status.set_state(v1::DEVICE_STATE_UNAVAILABLE);
    status.set_reason(std::string(health.message()));
  }
  return status;
}

void DeviceRunner::DropStaleWorker() {
  const bool stale = options_.gpu_health->TakeStale(options_.device.name);
  if (client_ == nullptr || (!stale && CheckHealth().ok())) return;
  EndWorker("for what happened to the GPU");
}

void DeviceRunner::EndWorker(const char* why) {
  log::Info("$0: ending the worker $1", options_.device.name, why);
  client_.reset();
  SetState(v1::DEVICE_STATE_IDLE);
}

void DeviceRunner::Loop() {
  while (!options_.queue->shut()) {
    DropStaleWorker();
    GiveWay();
    if (StandsBack()) {
      absl::SleepFor(std::min(kTick / 10, options_.limits.backoff_initial));
      continue;
    }
    const std::shared_ptr<jobs::WorkItem> item =
        options_.queue->Take(std::min(kTick, options_.limits.idle_timeout), token_.get());
    DropStaleWorker();
    if (item == nullptr) {
      Idle();
      continue;
    }
    if (available_) SetState(v1::DEVICE_STATE_BUSY);
    ++requests_;
    Late late;
    const SteadyTime start = SteadyTime::Now();
    jobs::WorkResult result = Execute(item, &late);
    // Work cancelled because its GPU was lost ends with the GPU's reason.
    if (const absl::Status health = CheckHealth();
        absl::IsCancelled(result.status) && !health.ok()) {
      SetAvailable(false);
      SetState(v1::DEVICE_STATE_IDLE);
      result.status = health;
    }
    if (!available_ && absl::IsUnavailable(result.status) && options_.queue->available() > 0) {
      --requests_;
      options_.queue->PutBack(item);
      continue;
    }
    Histogram& outcome = result.status.ok()                 ? succeeded_
                         : absl::IsCancelled(result.status) ? cancelled_
                                                            : failed_;
    outcome.Record(absl::ToInt64Nanoseconds(SteadyTime::Now() - start));
    if (result.status.ok()) {
      backoff_ = options_.limits.backoff_initial;
    } else {
      log::Warn("$0: $1: $2", options_.device.name, item->spec.key.problem_text,
                result.status.ToString());
    }
    idle_since_ = SteadyTime::Now();
    const bool pending = client_ != nullptr && client_->pending();
    if (client_ != nullptr && !pending) {
      SetState(v1::DEVICE_STATE_READY);
    } else if (available_ && absl::IsCancelled(result.status)) {
      SetState(v1::DEVICE_STATE_IDLE);
    }
    options_.queue->Finish(item, result);
    if (pending || !late.suspects.empty()) FinishLate(item->spec, std::move(late));
  }
  client_.reset();
  options_.turn->GiveBack(this);
  SetState(v1::DEVICE_STATE_IDLE);
}

void DeviceRunner::GiveWay() {
  const bool works = options_.queue->depth() > 0;
  if (!options_.turn->Wanted(this, works ? kTurn : absl::ZeroDuration())) return;
  if (client_ != nullptr) EndWorker("since another cuDNN is asked for");
  options_.turn->GiveBack(this);
}

bool DeviceRunner::StandsBack() {
  if (!CheckHealth().ok()) {
    SetAvailable(false);
    return options_.queue->available() > 0;
  }
  return !available_ && SteadyTime::Now() < not_before_ && options_.queue->available() > 0;
}

void DeviceRunner::Idle() {
  if (client_ == nullptr) return;
  if (!client_->Alive()) {
    CountDeath();
    log::Warn("$0: the idle worker ended", options_.device.name);
    client_.reset();
    PauseBeforeStart(false);
    SetState(v1::DEVICE_STATE_IDLE);
  } else if (SteadyTime::Now() - idle_since_ >= options_.limits.idle_timeout) {
    EndWorker("that has no work");
  }
}

absl::Status DeviceRunner::EnsureWorker() {
  if (absl::Status health = CheckHealth(); !health.ok()) {
    SetAvailable(false);
    return health;
  }
  if (!options_.turn->Await(this, token_.get())) {
    return absl::CancelledError("cancelled");
  }
  if (client_ != nullptr && !client_->Alive()) {
    CountDeath();
    client_.reset();
  }
  std::string reason;
  for (int attempt = 0; client_ == nullptr && attempt < kStartAttempts; ++attempt) {
    const absl::Duration pause = not_before_ - SteadyTime::Now();
    if (!available_ && (attempt > 0 || pause > absl::ZeroDuration())) {
      // Known to be broken: one attempt, and none before its time.
      reason = start_failure_;
      break;
    }
    if (pause > absl::ZeroDuration() && token_->WaitFor(pause)) {
      return absl::CancelledError("cancelled");
    }
    const SelfCheckCache::Entry known = options_.self_checks->Find(self_check_key_);
    if (std::popcount(known.lost_steps) > kMostStepsLost) {
      // The GPU is broken as a whole.
      reason = absl::StrCat("workers died or hung in these steps of their self-check: ",
                            absl::StrJoin(FailedInstruments(known.lost_steps), ", "));
      PauseBeforeStart(true);
      break;
    }
    {
      MutexLock lock(mutex_);
      status_.set_worker_starts(status_.worker_starts() + 1);
    }
    WorkerClient::Options start{options_.device.worker_argv, environment_text_,
                                options_.limits.hang_timeout, token_.get()};
    start.library_path = options_.device.cudnn.library_path;
    start.self_check = known.passed;
    start.lost_steps = known.lost_steps;
    uint32_t lost_step = 0;
    absl::StatusOr<std::unique_ptr<WorkerClient>> client =
        WorkerClient::Start(std::move(start), &lost_step);
    if (client.ok()) {
      client_ = *std::move(client);
      TakeSelfCheck();
      break;
    }
    if (absl::IsCancelled(client.status())) return client.status();
    reason = std::string(client.status().message());
    log::Error("$0: cannot start the worker: $1", options_.device.name, reason);
    start_failure_ = reason;
    // The next worker leaves that step of its self-check out. One that dies in a step that it was
    // to leave out counts as any that cannot be started.
    if ((lost_step & ~known.lost_steps) != 0) {
      options_.self_checks->NoteLost(self_check_key_, lost_step);
      --attempt;
      continue;
    }
    PauseBeforeStart(true);
    if (available_) SetState(v1::DEVICE_STATE_BACKING_OFF, reason);
  }
  if (client_ == nullptr) {
    SetAvailable(false);
    SetState(v1::DEVICE_STATE_UNAVAILABLE, reason);
    return absl::UnavailableError(absl::StrCat("no worker can be started: ", reason));
  }
  SetAvailable(true);
  SetState(v1::DEVICE_STATE_BUSY);
  return absl::OkStatus();
}

void DeviceRunner::TakeSelfCheck() {
  const SelfCheck& check = client_->self_check();
  options_.self_checks->Note(self_check_key_, check);
  MutexLock lock(mutex_);
  if (check.known() && check != self_check_) {
    const std::vector<std::string> failed = FailedInstruments(check.mask);
    if (failed.empty()) {
      log::Info("$0: the worker's self-check found nothing wrong", options_.device.name);
    } else {
      log::Warn("$0: the worker's self-check failed: $1\n$2", options_.device.name,
                absl::StrJoin(failed, ", "), check.details);
    }
  }
  self_check_ = check;
}

WorkerLoss DeviceRunner::TakeLoss() {
  WorkerLoss loss = *client_->loss();
  client_.reset();
  if (token_->cancelled()) return loss;
  CountDeath();
  log::Warn("$0: lost the worker: $1$2", options_.device.name, loss.reason,
            loss.killed_from_outside ? ", from outside" : "");
  // A candidate's fault says nothing about the next start.
  PauseBeforeStart(!loss.suspect);
  SetState(v1::DEVICE_STATE_BACKING_OFF, loss.reason);
  return loss;
}

absl::StatusOr<std::optional<QuarantineEntry>> DeviceRunner::Judge(
    const jobs::WorkSpec& spec, const CandidateId& suspect, SteadyTime end,
    const std::function<bool()>& gives_way) {
  for (int kills = 0; kills <= kOutsideKills; ++kills) {
    if (SteadyTime::Now() >= end || (gives_way && gives_way())) {
      return absl::DeadlineExceededError("there is no more time");
    }
    RETURN_IF_ERROR(EnsureWorker());
    const int checker_version = client_->hello().checker_version();
    client_->SetEnd(end, gives_way);
    // The worker survives it, or there is a loss; whether it works is no matter.
    const absl::Status status = tuning::TryAlone(spec, suspect, client_.get());
    client_->SetEnd(SteadyTime::InfiniteFuture());
    if (client_->pending()) {
      client_.reset();
      return status;
    }
    if (!client_->loss()) return std::nullopt;
    const WorkerLoss loss = TakeLoss();
    if (token_->cancelled()) return absl::CancelledError("cancelled");
    if (loss.killed_from_outside) continue;
    if (!loss.suspect) return std::nullopt;
    const QuarantineEntry entry = Blame(suspect, loss, spec.options.time_budget, checker_version);
    Quarantine(spec.key, entry);
    return std::make_optional(entry);
  }
  return std::nullopt;
}

void DeviceRunner::Quarantine(const TuningKey& key, QuarantineEntry entry) {
  entry.key = key;
  entry.create_time = options_.clock->Now();
  log::Warn("$0: quarantined $1 of $2 ($3): $4", options_.device.name, ToText(entry.candidate),
            key.problem_text, Name(entry.reason), entry.message);
  options_.committer->Quarantine(entry);
}

void DeviceRunner::LiftQuarantines(const Tuning& tuning, absl::Duration budget,
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
  if (!status.ok()) log::Error("could not lift a quarantine: $0", status.ToString());
}

bool DeviceRunner::FinishPending(const std::function<bool()>& gives_way, Late* late) {
  client_->SetEnd(SteadyTime::InfiniteFuture(), gives_way);
  const absl::Status status = client_->FinishPending();
  if (status.ok()) client_->CloseProblem().IgnoreError();
  if (client_->pending()) {
    client_.reset();
    return false;
  }
  client_->SetEnd(SteadyTime::InfiniteFuture());
  if (!client_->loss()) return true;
  const WorkerLoss loss = TakeLoss();
  if (loss.suspect && !loss.killed_from_outside) {
    const auto suspect = late->candidates.find(*loss.suspect);
    if (suspect != late->candidates.end()) late->suspects.push_back(suspect->second);
  }
  return true;
}

void DeviceRunner::FinishLate(const jobs::WorkSpec& spec, Late late) {
  // Late work gives way to work that waits for long, and where the queue is shut.
  SteadyTime waits_since = SteadyTime::InfiniteFuture();
  const auto gives_way = [this, &waits_since] {
    if (options_.queue->shut()) return true;
    const SteadyTime now = SteadyTime::Now();
    const bool waits =
        options_.queue->depth() > 0 || options_.turn->Wanted(this, absl::ZeroDuration());
    waits_since = waits ? std::min(waits_since, now) : SteadyTime::InfiniteFuture();
    return now - waits_since >= options_.limits.late_work_timeout;
  };
  const bool pending = client_ != nullptr && client_->pending();
  if (!pending || FinishPending(gives_way, &late)) {
    for (const CandidateId& suspect : late.suspects) {
      const auto judged = Judge(spec, suspect, SteadyTime::InfiniteFuture(), gives_way);
      if (judged.ok()) continue;
      log::Info("$0: $1 of $2 is not tried alone: $3", options_.device.name, ToText(suspect),
                spec.key.problem_text, judged.status().ToString());
      break;
    }
  }
  if (available_) {
    SetState(client_ != nullptr ? v1::DEVICE_STATE_READY : v1::DEVICE_STATE_IDLE);
  }
  idle_since_ = SteadyTime::Now();
}

jobs::WorkResult DeviceRunner::Execute(const std::shared_ptr<jobs::WorkItem>& item, Late* late) {
  const TuningKey& key = item->spec.key;
  const absl::Duration budget = item->spec.options.time_budget;
  tuning::RunnerInput input{item->spec,
                            options_.device.provenance,
                            options_.committer->QuarantinedOf(key),
                            {},
                            options_.clock,
                            [this, &item](const jobs::WorkProgress& progress) {
                              options_.queue->Report(item, progress);
                            }};
  int outside_kills = 0;
  int unexplained = 0;
  SteadyTime end = SteadyTime::InfiniteFuture();  // of the budget, however many workers it takes
  while (true) {
    if (token_->cancelled()) return {absl::CancelledError("cancelled")};
    if (const absl::Status status = EnsureWorker(); !status.ok()) return {status};
    const int checker_version = client_->hello().checker_version();
    // A quarantine ends by a candidate's being tried: on a GPU, by its being run.
    const bool tries = !client_->hello().has_gpu() ||
                       (item->spec.kind == jobs::WorkKind::kTune && client_->measures());
    if (tries) {
      std::erase_if(input.quarantined, [budget, checker_version](const auto& entry) {
        return !entry.second.HoldsFor(budget, checker_version);
      });
    }
    const absl::Duration left = end - SteadyTime::Now();
    const bool last_attempt = left <= kLastAttempt;
    input.spec.options.time_budget = std::min(budget, std::max(left, kLastAttempt));
    const tuning::RunnerOutput output = tuning::RunTuning(input, client_.get());
    late->candidates = output.candidates;
    if (end == SteadyTime::InfiniteFuture() && output.began) {
      end = *output.began + budget;
      input.spec.options.wait_idle = absl::ZeroDuration();
    }
    for (const QuarantineEntry& entry : output.wrong) {
      Quarantine(key, entry);
      input.quarantined.emplace(entry.candidate, entry);
    }
    if (output.tuning.ok()) {
      if (output.tuning->rounds > 0) {
        MutexLock lock(mutex_);
        status_.set_unblocked(output.tuning->conditions.unblocked);
      }
      if (tries) LiftQuarantines(*output.tuning, budget, *client_);
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
        const auto guilt = Judge(item->spec, suspect->second, end, nullptr);
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

}  // namespace convtune::devices

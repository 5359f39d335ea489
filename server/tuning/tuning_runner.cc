#include "server/tuning/tuning_runner.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/clock.h"
#include "proto/base/status_macros.h"
#include "server/decision/evidence.h"
#include "server/tuning/check_runner.h"
#include "server/tuning/race_runner.h"
#include "server/tuning/secondary_timings.h"
#include "server/tuning/worker_requests.h"

namespace convtune::tuning {
namespace {

// More than any listing has; a worker that sends more has lost its mind.
constexpr int kMaxListed = 200'000;
constexpr absl::Duration kLongestMargin = absl::Milliseconds(250);
// Candidates that a heuristic look-up prepares.
constexpr int kFirstConfigs = 3;
// The period of the looks at a busy GPU while a tuning waits for it.
constexpr absl::Duration kIdlePeriod = absl::Milliseconds(250);

// One run; see RunTuning.
class Run {
 public:
  Run(const RunnerInput& input, supervisor::WorkerClient* client)
      : input_(input),
        client_(client),
        measures_(client->measures() && input.spec.kind == jobs::WorkKind::kTune) {
    circumstances_.clock_failed = !client->self_check().works(SelfCheckBit::kClock);
  }

  RunnerOutput Output() {
    output_.tuning = Go();
    for (const auto& [index, candidate] : candidates_) {
      output_.candidates.emplace(index, candidate.id);
    }
    return std::move(output_);
  }

 private:
  absl::StatusOr<Tuning> Go() {
    const jobs::TuningOptions& options = input_.spec.options;
    if (measures_ && options.wait_idle > absl::ZeroDuration()) {
      RETURN_IF_ERROR(WaitUntilIdle(options.wait_idle, kIdlePeriod, client_));
    }
    const SteadyTime start = SteadyTime::Now();
    output_.began = start;
    // The worker, which looks at its time between candidates, is given a little
    // less, so that as a rule it ends by itself.
    end_ = start + (options.time_budget - std::min(options.time_budget / 10, kLongestMargin));
    client_->SetEnd(start + options.time_budget);
    const absl::Status status = Try();
    client_->SetEnd(SteadyTime::InfiniteFuture());
    if (absl::IsDeadlineExceeded(status)) {
      circumstances_.cut_off = true;
    } else {
      RETURN_IF_ERROR(status);
      RETURN_IF_ERROR(client_->CloseProblem());
    }
    Tuning tuning = std::move(tuning_);
    tuning.conditions.self_check = client_->self_check().mask;
    tuning.key = input_.spec.key;
    tuning.provenance = input_.provenance;
    tuning.tune_time = absl::FromUnixMicros(absl::ToUnixMicros(input_.clock->Now()));
    tuning.elapsed = absl::Microseconds(absl::ToInt64Microseconds(SteadyTime::Now() - start));
    tuning.memory_budget_bytes = input_.spec.options.memory_budget_bytes;
    for (const auto& [index, candidate] : candidates_) tuning.candidates.push_back(candidate);
    decision::FinishTuning(circumstances_, &tuning);
    if (tuning.evidence == Evidence::kNone) return NoneRan(tuning);
    return tuning;
  }

  absl::Status Try() {
    RETURN_IF_ERROR(List(input_.spec.kind));
    RETURN_IF_ERROR(Prepare());
    if (circumstances_.first_configs_only && !AnyOfModeA()) {
      RETURN_IF_ERROR(AskModeB());
    }
    return measures_ ? Measure() : absl::OkStatus();
  }
  absl::Status List(jobs::WorkKind kind);
  absl::Status Prepare();
  bool AnyOfModeA() const {
    return std::any_of(candidates_.begin(), candidates_.end(), [](const auto& entry) {
      return entry.second.usable() && entry.second.places.mode_a > 0;
    });
  }
  absl::Status AskModeB();
  absl::Status Measure();
  absl::Status NoneRan(const Tuning& tuning) const;
  void Report(int done) const {
    if (input_.progress) input_.progress({done, static_cast<int>(candidates_.size())});
  }

  const RunnerInput& input_;
  supervisor::WorkerClient* const client_;
  const bool measures_;
  SteadyTime end_ = SteadyTime::InfiniteFuture();
  std::map<int, Candidate> candidates_;  // by the worker's index
  Tuning tuning_;                        // what the race says of itself
  decision::TuningCircumstances circumstances_;
  RunnerOutput output_;
};

absl::Status Run::List(jobs::WorkKind kind) {
  std::set<CandidateId> seen;
  bool nonsense = false;
  circumstances_.one_api = measures_ && input_.spec.options.api != Api::kAny;
  circumstances_.first_configs_only = input_.spec.kind == jobs::WorkKind::kFirstConfigs;
  jobs::WorkSpec spec = input_.spec;
  spec.kind = kind;
  ASSIGN_OR_RETURN(const worker::v1::Outcome outcome,
                   client_->Call(OpenRequest(spec, client_->measures()),
                                 [this, &seen, &nonsense](const worker::v1::Reply& reply) {
                                   std::optional<Candidate> candidate = ReadListed(reply.listed());
                                   if (!candidate || candidates_.size() >= kMaxListed) {
                                     nonsense = true;
                                     return;
                                   }
                                   if (!seen.insert(candidate->id).second) return;
                                   const auto quarantined = input_.quarantined.find(candidate->id);
                                   if (quarantined != input_.quarantined.end()) {
                                     candidate->status = CandidateStatus::kQuarantined;
                                     candidate->error_message = quarantined->second.message;
                                   }
                                   candidates_.emplace(reply.index(), *std::move(candidate));
                                 }));
  if (nonsense) return absl::FailedPreconditionError("the worker lists what is no candidate");
  circumstances_.listing_cut = outcome.out_of_time() || outcome.truncated();
  circumstances_.find_left_out = outcome.find_left_out();
  return absl::OkStatus();
}

absl::Status Run::Prepare() {
  worker::v1::Request request;
  request.mutable_prepare();
  int done = 0;
  // Legacy algorithms first: they are quick to prepare, plans may not be. Last
  // those that are compiled, which may take seconds each.
  enum class Turn { kLegacy, kPlan, kCompiled };
  const auto turn_of = [](const Candidate& candidate) {
    if (ApiOf(candidate.id) == Api::kLegacy) return Turn::kLegacy;
    return candidate.has(BehaviorNote::kRuntimeCompilation) ? Turn::kCompiled : Turn::kPlan;
  };
  for (const Turn turn : {Turn::kLegacy, Turn::kPlan, Turn::kCompiled}) {
    for (const auto& [index, candidate] : candidates_) {
      if (turn_of(candidate) != turn) continue;
      if (candidate.status == CandidateStatus::kSkippedBudget &&
          !input_.left_out.contains(candidate.id)) {
        request.add_indexes(index);
      } else {
        ++done;
      }
    }
  }
  Report(done);
  if (request.indexes().empty()) return absl::OkStatus();
  if (circumstances_.first_configs_only) {
    request.mutable_prepare()->set_stop_after(kFirstConfigs);
  }
  // Plans may take long to build: half of the time is kept for timing them.
  request.set_time_budget_ms(measures_ ? std::max<int64_t>(1, MillisUntil(end_) / 2)
                                       : MillisUntil(end_));
  return client_
      ->Call(request,
             [this, &done](const worker::v1::Reply& reply) {
               const worker::v1::Prepared& prepared = reply.prepared();
               const auto found = candidates_.find(reply.index());
               if (found == candidates_.end()) return;
               Candidate& candidate = found->second;
               const bool sound = prepared.workspace_bytes() >= 0;
               candidate.workspace_bytes = sound ? prepared.workspace_bytes() : 0;
               candidate.error_message =
                   sound ? prepared.error_message() : "prepared with a workspace that cannot be";
               candidate.status = prepared.ok() && sound   ? CandidateStatus::kFinalized
                                  : prepared.over_memory() ? CandidateStatus::kSkippedMemory
                                                           : CandidateStatus::kUnsupported;
               Report(++done);
             })
      .status();
}

// What mode B lists comes before FALLBACK's. It takes long to ask, so that a heuristic look-up
// asks it only where nothing of mode A's can be had.
absl::Status Run::AskModeB() {
  RETURN_IF_ERROR(client_->CloseProblem());
  std::map<int, Candidate> without = std::exchange(candidates_, {});
  absl::Status status = List(jobs::WorkKind::kListAll);
  if (status.ok()) status = Prepare();
  if (absl::IsDeadlineExceeded(status)) candidates_ = std::move(without);
  return status;
}

absl::Status Run::Measure() {
  CheckRunner check(input_.spec.problem, input_.quarantined, client_->self_check(), &candidates_,
                    client_);
  SteadyTime now = SteadyTime::Now();
  absl::Status status = check.Run(now + (end_ - now) / 2);
  output_.wrong = check.wrong();
  circumstances_.doubt = check.doubt();
  if (!status.ok() && !absl::IsDeadlineExceeded(status)) return status;
  RaceRunner race(check.passed(), check.reports(), &candidates_, &tuning_, client_);
  now = SteadyTime::Now();
  const absl::Status raced =
      race.Run(status.ok() ? now + (end_ - now) * 4 / 5 : SteadyTime::InfinitePast());
  if (status.ok()) status = raced;
  if (status.ok()) {
    status = TimeSecondary(race.finalists(), input_.spec.options.all_timings, end_, &candidates_,
                           &tuning_, client_);
  }
  const bool any_timed = std::any_of(candidates_.begin(), candidates_.end(),
                                     [](const auto& entry) { return entry.second.timed(); });
  for (auto& [index, candidate] : candidates_) {
    // Where nothing could be timed, that they can be had is all that is known.
    if (any_timed && candidate.status == CandidateStatus::kFinalized) {
      candidate.status = CandidateStatus::kSkippedBudget;
    }
  }
  circumstances_.race_cut = tuning_.stop_reason == StopReason::kBudget;
  return status;
}

absl::Status Run::NoneRan(const Tuning& tuning) const {
  std::map<std::string, int> counts;
  std::string first;
  for (const Candidate& candidate : tuning.candidates) {
    ++counts[std::string(Name(candidate.status))];
    if (first.empty()) first = candidate.error_message;
  }
  std::string message = absl::StrCat(circumstances_.cut_off ? "the budget ended, and " : "",
                                     "no candidate ran: ", tuning.candidates.size(), " listed");
  for (const auto& [status, count] : counts) absl::StrAppend(&message, ", ", count, " ", status);
  if (!first.empty()) absl::StrAppend(&message, "; the first: ", first);
  return absl::NotFoundError(message);
}

}  // namespace

RunnerOutput RunTuning(const RunnerInput& input, supervisor::WorkerClient* client) {
  return Run(input, client).Output();
}

}  // namespace convtune::tuning

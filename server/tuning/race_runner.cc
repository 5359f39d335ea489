#include "server/tuning/race_runner.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/time/clock.h"
#include "proto/base/status_macros.h"
#include "proto/convert/record_codec.h"
#include "server/decision/contests.h"
#include "server/decision/intervals.h"
#include "server/tuning/worker_requests.h"

namespace convtune::tuning {
namespace {

// Of short candidates several runs, whose mean is not off by a tenth, as one event's
// step of half a microsecond would be.
constexpr int kScreeningSampleUs = 12;

std::vector<decision::Contender> ContendersOf(const std::map<int, Candidate>& candidates,
                                              const std::vector<int>& indexes) {
  // Each API's stock choice stays to the end.
  std::vector<const Candidate*> all;
  for (const int index : indexes) all.push_back(&candidates.at(index));
  const Candidate* graph_stock = FirstListed(all, Api::kGraph);
  const Candidate* legacy_stock = FirstListed(all, Api::kLegacy);
  const Candidate* stock = FirstListed(all, Api::kAny);
  std::vector<decision::Contender> contenders;
  for (const Candidate* candidate : all) {
    const bool stays = candidate == graph_stock || candidate == legacy_stock;
    contenders.push_back({decision::ContestsOf(*candidate, stock), stays});
  }
  return contenders;
}

}  // namespace

Conditions ReadConditions(const v1::Conditions& look) {
  Conditions conditions;
  if (!Read(look, &conditions).ok()) return {};
  conditions.retried_runs = std::max(0, conditions.retried_runs);
  if (!conditions.known) {
    Conditions runs;
    runs.retried_runs = conditions.retried_runs;
    runs.unblocked = std::move(conditions.unblocked);
    return runs;
  }
  if (!std::isfinite(conditions.power_limit_watts)) conditions.power_limit_watts = 0;
  return conditions;
}

absl::Status WaitUntilIdle(absl::Duration longest, absl::Duration period,
                           supervisor::WorkerClient* client) {
  const absl::Time end = absl::Now() + longest;
  while (absl::Now() < end) {
    ASSIGN_OR_RETURN(const v1::Conditions conditions, client->ReadConditions());
    if (!ReadConditions(conditions).contended()) break;
    if (client->Pause(std::min(period, end - absl::Now()))) {
      return absl::CancelledError("cancelled");
    }
  }
  return absl::OkStatus();
}

RaceRunner::RaceRunner(const decision::RacePolicy& policy, std::vector<int> indexes,
                       std::map<int, Candidate>* candidates, supervisor::WorkerClient* client)
    : client_(client),
      candidates_(candidates),
      cache_state_(MayClaimCold(client->self_check()) ? CacheState::kInputHot : CacheState::kHot),
      indexes_(std::move(indexes)),
      host_us_(indexes_.size()),
      race_(policy, ContendersOf(*candidates, indexes_)) {
  for (size_t place = 0; place < indexes_.size(); ++place) places_[indexes_[place]] = place;
}

absl::Status RaceRunner::Run(absl::Time end) {
  if (indexes_.empty()) return absl::OkStatus();
  absl::Status status = Rounds(end);
  if (absl::IsDeadlineExceeded(status)) stop_ = StopReason::kBudget;
  if (rounds_ == 0) {
    for (const auto& [index, run] : warm_runs_) Take(run);
  }
  DropOtherKind();
  WriteResults();
  return status;
}

absl::Status RaceRunner::Rounds(absl::Time end) {
  while (true) {
    DropOtherKind();
    const decision::RaceStep step = race_.Next();
    stop_ = step.stop;
    if (stop_ != StopReason::kNone) return absl::OkStatus();
    if (absl::Now() >= end) {
      stop_ = StopReason::kBudget;
      return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(const worker::v1::Outcome outcome, RunStep(step, end));
    if (outcome.out_of_time()) {
      stop_ = StopReason::kBudget;
      return absl::OkStatus();
    }
  }
}

absl::StatusOr<worker::v1::Outcome> RaceRunner::RunStep(const decision::RaceStep& step,
                                                        absl::Time end) {
  worker::v1::Measure request;
  for (const size_t place : step.runners) request.add_indexes(indexes_[place]);
  request.set_rounds(step.rounds);
  request.set_first_round(race_.rounds());
  request.set_cache_state(static_cast<v1::CacheState>(cache_state_));
  if (step.screening) request.set_sample_us(kScreeningSampleUs);
  request.set_time_budget_ms(std::max<int64_t>(1, absl::ToInt64Milliseconds(end - absl::Now())));
  return client_->Measure(
      request, [this](const worker::v1::Sample& sample) { Take(sample); },
      [this](const v1::Conditions& look) { Merge(ReadConditions(look), &conditions_); });
}

void RaceRunner::Take(const worker::v1::Sample& sample) {
  const auto found = places_.find(sample.index());
  if (found == places_.end()) return;
  const size_t place = found->second;
  Candidate& candidate = candidates_->at(sample.index());
  if (!candidate.usable()) return;
  if (!sample.error_message().empty()) {
    candidate.status =
        sample.over_memory() ? CandidateStatus::kSkippedMemory : CandidateStatus::kFailed;
    candidate.error_message = sample.error_message();
    race_.Leave(place);
    return;
  }
  const int round = sample.round();
  if (!(sample.gpu_us() > 0) || !std::isfinite(sample.gpu_us()) || round < 0 ||
      round >= race_.end_round()) {
    return;
  }
  const double clock =
      std::isfinite(sample.sm_clock_mhz()) ? std::max(0.0, sample.sm_clock_mhz()) : 0;
  race_.Add(place, round, {sample.gpu_us(), clock, sample.blocked()});
  if (std::isfinite(sample.host_us()) && sample.host_us() > 0) {
    host_us_[place].push_back(sample.host_us());
  }
  candidate.status = CandidateStatus::kTimed;
  rounds_ = std::max(rounds_, round + 1);
}

std::vector<int> RaceRunner::finalists() const {
  std::vector<int> finalists;
  for (const size_t place : race_.runners()) finalists.push_back(indexes_[place]);
  return finalists;
}

void RaceRunner::DropOtherKind() {
  for (const size_t place : race_.LeaveOtherKind()) {
    Candidate& candidate = candidates_->at(indexes_[place]);
    candidate.status = CandidateStatus::kFailed;
    candidate.error_message =
        "its times do not compare with those of most candidates: one kind was taken behind a "
        "blocking kernel, the other was not";
  }
}

void RaceRunner::WriteResults() {
  const std::vector<decision::TimeEstimate> estimates = race_.Estimates();
  const std::vector<decision::Series> samples = race_.Samples();
  for (size_t place = 0; place < indexes_.size(); ++place) {
    Candidate& candidate = candidates_->at(indexes_[place]);
    const decision::TimeEstimate& estimate = estimates[place];
    if (!candidate.timed()) continue;
    candidate.median_us = estimate.median_us;
    candidate.q1_us = estimate.q1_us;
    candidate.q3_us = estimate.q3_us;
    candidate.low_us = estimate.low_us;
    candidate.high_us = estimate.high_us;
    candidate.sample_count = estimate.sample_count;
    candidate.sm_clock_mhz = estimate.sm_clock_mhz;
    candidate.host_us = decision::Median(host_us_[place]);
    for (const decision::RunSample& run : samples[place]) {
      candidate.samples_ns.push_back(SampleNs(run.time_us));
    }
    // All of its samples were discarded.
    if (estimate.sample_count == 0) candidate.status = CandidateStatus::kSkippedBudget;
  }
}

}  // namespace convtune::tuning

#include "server/tuning/race_runner.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "proto/base/clock.h"
#include "proto/base/status_macros.h"
#include "server/decision/intervals.h"
#include "server/decision/race.h"
#include "server/tuning/worker_requests.h"

namespace convtune::tuning {
namespace {

// The time in microseconds that the runs of a sample add up to in a screening. A short candidate
// runs several times, since one event's step of half a microsecond may be a tenth of its time.
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

absl::Status WaitUntilIdle(absl::Duration longest, absl::Duration period,
                           supervisor::WorkerClient* client) {
  const SteadyTime end = SteadyTime::Now() + longest;
  while (SteadyTime::Now() < end) {
    worker::v1::Request request;
    request.mutable_read_conditions();
    Conditions conditions;
    RETURN_IF_ERROR(client
                        ->Call(request,
                               [&conditions](const worker::v1::Reply& reply) {
                                 conditions = ReadConditions(reply.conditions());
                               })
                        .status());
    if (!conditions.contended()) break;
    if (client->Pause(std::min(period, end - SteadyTime::Now()))) {
      return absl::CancelledError("cancelled");
    }
  }
  return absl::OkStatus();
}

RaceRunner::RaceRunner(std::vector<int> indexes,
                       const std::map<int, worker::v1::Checked>& warm_runs,
                       std::map<int, Candidate>* candidates, Tuning* tuning,
                       supervisor::WorkerClient* client)
    : client_(client),
      candidates_(candidates),
      warm_runs_(warm_runs),
      tuning_(tuning),
      indexes_(std::move(indexes)),
      host_us_(indexes_.size()),
      race_(ContendersOf(*candidates, indexes_)) {
  for (size_t number = 0; number < indexes_.size(); ++number) numbers_[indexes_[number]] = number;
  // What the caches hold in all samples: x, or everything where a flush does nothing.
  tuning_->cache_state =
      client->self_check().works(SelfCheckBit::kCaches) ? CacheState::kInputHot : CacheState::kHot;
}

absl::Status RaceRunner::Run(SteadyTime end) {
  if (indexes_.empty()) return absl::OkStatus();
  absl::Status status = Rounds(end);
  if (absl::IsDeadlineExceeded(status)) tuning_->stop_reason = StopReason::kBudget;
  if (tuning_->rounds == 0) {
    for (const auto& [index, checked] : warm_runs_) {
      worker::v1::Sample sample;
      sample.set_gpu_us(checked.gpu_us());
      sample.set_host_us(checked.host_us());
      Take(index, sample);
    }
  }
  DropOtherKind();
  WriteResults();
  return status;
}

absl::Status RaceRunner::Rounds(SteadyTime end) {
  while (true) {
    DropOtherKind();
    const decision::RaceStep step = race_.Next();
    tuning_->stop_reason = step.stop;
    if (tuning_->stop_reason != StopReason::kNone) return absl::OkStatus();
    if (SteadyTime::Now() >= end) {
      tuning_->stop_reason = StopReason::kBudget;
      return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(const worker::v1::Outcome outcome, RunStep(step, end));
    if (outcome.out_of_time()) {
      tuning_->stop_reason = StopReason::kBudget;
      return absl::OkStatus();
    }
  }
}

absl::StatusOr<worker::v1::Outcome> RaceRunner::RunStep(const decision::RaceStep& step,
                                                        SteadyTime end) {
  worker::v1::Request request;
  worker::v1::Measure& measure = *request.mutable_measure();
  for (const size_t number : step.runners) request.add_indexes(indexes_[number]);
  measure.set_rounds(step.rounds);
  measure.set_first_round(race_.rounds());
  measure.set_cache_state(static_cast<v1::CacheState>(tuning_->cache_state));
  if (step.screening) measure.set_sample_us(kScreeningSampleUs);
  request.set_time_budget_ms(MillisUntil(end));
  return client_->Call(request, [this](const worker::v1::Reply& reply) {
    if (reply.has_sample()) Take(reply.index(), reply.sample());
    if (reply.has_conditions()) Merge(ReadConditions(reply.conditions()), &tuning_->conditions);
  });
}

void RaceRunner::Take(int index, const worker::v1::Sample& sample) {
  const auto found = numbers_.find(index);
  if (found == numbers_.end()) return;
  const size_t number = found->second;
  Candidate& candidate = candidates_->at(index);
  if (!candidate.usable()) return;
  if (!sample.error_message().empty()) {
    candidate.status =
        sample.over_memory() ? CandidateStatus::kSkippedMemory : CandidateStatus::kFailed;
    candidate.error_message = sample.error_message();
    race_.Leave(number);
    return;
  }
  const int round = sample.round();
  const std::optional<decision::RunSample> run = ReadSample(sample);
  if (!run || round < 0 || round >= race_.end_round()) return;
  race_.Add(number, round, *run);
  if (std::isfinite(sample.host_us()) && sample.host_us() > 0) {
    host_us_[number].push_back(sample.host_us());
  }
  candidate.status = CandidateStatus::kTimed;
  tuning_->rounds = std::max(tuning_->rounds, round + 1);
}

std::vector<int> RaceRunner::finalists() const {
  std::vector<int> finalists;
  for (const size_t number : race_.runners()) finalists.push_back(indexes_[number]);
  return finalists;
}

void RaceRunner::DropOtherKind() {
  for (const size_t number : race_.LeaveOtherKind()) {
    Candidate& candidate = candidates_->at(indexes_[number]);
    candidate.status = CandidateStatus::kFailed;
    candidate.error_message =
        "its times do not compare with those of most candidates: one kind was taken behind a "
        "blocking kernel, the other was not";
  }
}

void RaceRunner::WriteResults() {
  const std::vector<decision::TimeEstimate> estimates = race_.Estimates();
  const std::vector<decision::Series> samples = race_.Samples();
  for (size_t number = 0; number < indexes_.size(); ++number) {
    Candidate& candidate = candidates_->at(indexes_[number]);
    const decision::TimeEstimate& estimate = estimates[number];
    if (!candidate.timed()) continue;
    candidate.median_us = estimate.median_us;
    candidate.q1_us = estimate.q1_us;
    candidate.q3_us = estimate.q3_us;
    candidate.low_us = estimate.low_us;
    candidate.high_us = estimate.high_us;
    candidate.sample_count = estimate.sample_count;
    candidate.sm_clock_mhz = estimate.sm_clock_mhz;
    candidate.host_us = decision::Median(host_us_[number]);
    for (const decision::RunSample& run : samples[number]) {
      candidate.samples_ns.push_back(SampleNs(run.time_us));
    }
    // All of its samples were discarded.
    if (estimate.sample_count == 0) candidate.status = CandidateStatus::kSkippedBudget;
  }
}

}  // namespace convtune::tuning

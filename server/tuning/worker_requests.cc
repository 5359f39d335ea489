#include "server/tuning/worker_requests.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "proto/base/clock.h"
#include "proto/convert/record_codec.h"

namespace convtune::tuning {

worker::v1::Request OpenRequest(const jobs::WorkSpec& spec, bool measures) {
  worker::v1::Request request;
  worker::v1::OpenProblem& open = *request.mutable_open_problem();
  open.set_problem_text(spec.key.problem_text);
  if (spec.kind == jobs::WorkKind::kFirstConfigs) {
    open.set_listing(worker::v1::LISTING_FIRST_CONFIGS);
  } else if (spec.kind == jobs::WorkKind::kTune &&
             spec.options.search == jobs::Search::kExhaustive) {
    open.set_listing(worker::v1::LISTING_EXHAUSTIVE);
  } else {
    open.set_listing(worker::v1::LISTING_HEURISTICS);
  }
  open.set_graph_api(spec.options.api != Api::kLegacy);
  // The legacy search runs what it lists, so a heuristic look-up leaves it out.
  open.set_legacy_api(spec.options.api != Api::kGraph && measures &&
                      spec.kind == jobs::WorkKind::kTune);
  // A third at most, so that what is listed can be tried.
  request.set_time_budget_ms(
      std::max<int64_t>(1, absl::ToInt64Milliseconds(spec.options.time_budget / 3)));
  open.set_max_candidates(spec.options.max_candidates);
  open.set_memory_budget_bytes(spec.options.memory_budget_bytes);
  return request;
}

int64_t MillisUntil(SteadyTime end) {
  return std::max<int64_t>(1, absl::ToInt64Milliseconds(end - SteadyTime::Now()));
}

std::optional<decision::RunSample> ReadSample(const worker::v1::Sample& sample) {
  const double clock = sample.sm_clock_mhz();
  if (!(sample.gpu_us() > 0) || !std::isfinite(sample.gpu_us())) return std::nullopt;
  return decision::RunSample{sample.gpu_us(), std::isfinite(clock) ? std::max(0.0, clock) : 0,
                             sample.blocked()};
}

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

std::optional<Candidate> ReadListed(const v1::Candidate& record) {
  Candidate listed;
  if (!Read(record, &listed).ok()) return std::nullopt;
  Candidate candidate;
  candidate.id = std::move(listed.id);
  candidate.numerical_notes = listed.numerical_notes;
  candidate.behavior_notes = listed.behavior_notes;
  const bool timed = std::isfinite(listed.find_us) && listed.find_us >= 0;
  candidate.workspace_bytes = std::max<int64_t>(0, listed.workspace_bytes);
  candidate.heuristic_rank = std::max(-1, listed.heuristic_rank);
  candidate.places = listed.places;
  candidate.find_us = timed ? listed.find_us : 0;
  candidate.error_message = std::move(listed.error_message);
  if (candidate.error_message.empty() && (!timed || listed.workspace_bytes < 0)) {
    candidate.error_message = "listed with a time or a workspace that cannot be";
  }
  candidate.status = candidate.error_message.empty() ? CandidateStatus::kSkippedBudget
                                                     : CandidateStatus::kUnsupported;
  return candidate;
}

}  // namespace convtune::tuning

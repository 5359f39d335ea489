#include "tests/fakes/replay_session.h"

#include "absl/strings/str_cat.h"
#include "proto/base/clock.h"
#include "proto/base/status_macros.h"
#include "proto/convert/record_codec.h"

namespace convtune {
absl::Status ReplaySession::Handle(const worker::v1::Request& request) {
  switch (request.kind_case()) {
    case worker::v1::Request::kHello:
      return Hello();
    case worker::v1::Request::kOpenProblem:
      return Open(request.open_problem());
    case worker::v1::Request::kPrepare:
      return Prepare(request);
    case worker::v1::Request::kCheck:
      return Check(request);
    case worker::v1::Request::kMeasure:
      return Measure(request);
    case worker::v1::Request::kReadConditions:
      RETURN_IF_ERROR(SendConditions());
      return Finish(true, "");
    case worker::v1::Request::kCloseProblem:
      return Finish(true, "");
    default:
      return Finish(false, "a recording has no answer to that");
  }
}

absl::Status ReplaySession::Hello() {
  worker::v1::Reply reply;
  reply.set_last(true);
  worker::v1::HelloReply* hello = reply.mutable_hello();
  hello->set_version(CONVTUNE_VERSION);
  hello->set_environment_text(recording_.environment().ToText());
  hello->set_has_gpu(!recording_.environment().profile);
  return Send(reply);
}

absl::Status ReplaySession::Open(const worker::v1::OpenProblem& request) {
  tuning_ = recording_.Find(request.problem_text());
  listed_.clear();
  if (tuning_ == nullptr) {
    return Finish(false, absl::StrCat(request.problem_text(), " was not recorded"));
  }
  for (const Candidate& candidate : Recording::Listed(*tuning_)) {
    const bool graph = ApiOf(candidate.id) == Api::kGraph;
    const bool wanted = graph ? request.graph_api() : request.legacy_api();
    const bool ranked = !graph || candidate.heuristic_rank >= 0;
    if (!wanted || (!ranked && request.listing() != worker::v1::LISTING_EXHAUSTIVE)) continue;
    if (request.max_candidates() > 0 &&
        listed_.size() == static_cast<size_t>(request.max_candidates())) {
      break;
    }
    worker::v1::Reply reply;
    reply.set_index(static_cast<int>(listed_.size()));
    // Nothing was done with it yet.
    Candidate listed;
    listed.id = candidate.id;
    listed.heuristic_rank = candidate.heuristic_rank;
    listed.places = candidate.places;
    listed.numerical_notes = candidate.numerical_notes;
    listed.behavior_notes = candidate.behavior_notes;
    listed.find_us = candidate.find_us;
    listed.workspace_bytes = candidate.workspace_bytes;
    Fill(listed, /*with_samples=*/false, reply.mutable_listed());
    listed_.push_back(candidate);
    RETURN_IF_ERROR(Send(reply));
  }
  return Finish(true, "");
}

absl::Status ReplaySession::Prepare(const worker::v1::Request& request) {
  int succeeded = 0;
  for (const int index : request.indexes()) {
    if (index < 0 || static_cast<size_t>(index) >= listed_.size()) {
      return Finish(false, "indexes: unknown candidate");
    }
    if (request.prepare().stop_after() > 0 && succeeded == request.prepare().stop_after()) break;
    RETURN_IF_ERROR(Touch(index));
    const Candidate& candidate = listed_[static_cast<size_t>(index)];
    worker::v1::Reply reply;
    worker::v1::Prepared* prepared = reply.mutable_prepared();
    reply.set_index(index);
    prepared->set_ok(candidate.usable());
    prepared->set_workspace_bytes(candidate.workspace_bytes);
    prepared->set_error_message(candidate.error_message);
    succeeded += candidate.usable() ? 1 : 0;
    RETURN_IF_ERROR(Send(reply));
  }
  return Finish(true, "");
}

absl::Status ReplaySession::SendConditions() {
  worker::v1::Reply reply;
  v1::Conditions* conditions = reply.mutable_conditions();
  conditions->set_known(true);
  conditions->set_compute_mode(v1::COMPUTE_MODE_DEFAULT);
  return Send(reply);
}

// What was recorded is right; it was judged then.
absl::Status ReplaySession::Check(const worker::v1::Request& request) {
  for (const int index : request.indexes()) {
    if (index < 0 || static_cast<size_t>(index) >= listed_.size()) {
      return Finish(false, "indexes: not prepared");
    }
    RETURN_IF_ERROR(Touch(index));
    const Candidate& candidate = listed_[static_cast<size_t>(index)];
    worker::v1::Reply reply;
    worker::v1::Checked* checked = reply.mutable_checked();
    reply.set_index(index);
    checked->set_error(0);
    checked->set_capture(static_cast<v1::CaptureSupport>(candidate.capture));
    checked->set_gpu_us(Recording::TimeInRound(candidate, 0));
    if (checked->gpu_us() == 0) checked->set_error_message("was not timed in the recording");
    checked->set_host_us(candidate.host_us);
    RETURN_IF_ERROR(Send(reply));
  }
  return Finish(true, "");
}

absl::Status ReplaySession::Measure(const worker::v1::Request& request) {
  const worker::v1::Measure& measure = request.measure();
  RETURN_IF_ERROR(SendConditions());
  const SteadyTime end = SteadyTime::Now() + absl::Milliseconds(request.time_budget_ms());
  for (int round = measure.first_round(); round < measure.first_round() + measure.rounds();
       ++round) {
    if (SteadyTime::Now() >= end) return Finish(true, "", true);
    for (const int index : request.indexes()) {
      if (index < 0 || static_cast<size_t>(index) >= listed_.size()) {
        return Finish(false, "indexes: not prepared");
      }
      RETURN_IF_ERROR(Touch(index));
      const Candidate& candidate = listed_[static_cast<size_t>(index)];
      worker::v1::Reply reply;
      worker::v1::Sample* sample = reply.mutable_sample();
      reply.set_index(index);
      sample->set_round(round);
      sample->set_gpu_us(Recording::TimeInRound(candidate, round));
      if (sample->gpu_us() == 0) sample->set_error_message("was not timed in the recording");
      sample->set_host_us(candidate.host_us);
      sample->set_sm_clock_mhz(candidate.sm_clock_mhz);
      RETURN_IF_ERROR(Send(reply));
    }
  }
  return Finish(true, "");
}

}  // namespace convtune

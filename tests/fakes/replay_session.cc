#include "tests/fakes/replay_session.h"

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/base/status_macros.h"

namespace convtune {
namespace {

// The version that this session speaks, whatever the worker's is by now.
constexpr int kProtocolMajor = 1;
constexpr int kProtocolMinor = 1;

template <typename Note>
std::vector<int> NotesOf(uint32_t mask) {
  std::vector<int> notes;
  for (int note = 1; note < 32; ++note) {
    if ((mask & NoteBit(static_cast<Note>(note))) != 0) notes.push_back(note);
  }
  return notes;
}

}  // namespace

absl::Status ReplaySession::Handle(const worker::v1::Request& request) {
  switch (request.kind_case()) {
    case worker::v1::Request::kHello:
      return Hello();
    case worker::v1::Request::kOpenProblem:
      return Open(request.open_problem());
    case worker::v1::Request::kPrepare:
      return Prepare(request.prepare());
    case worker::v1::Request::kMeasure:
      return Measure(request.measure());
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
  hello->set_protocol_major(kProtocolMajor);
  hello->set_protocol_minor(kProtocolMinor);
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
    worker::v1::ListedCandidate* listed = reply.mutable_listed();
    listed->set_index(static_cast<int>(listed_.size()));
    listed->set_text(ToText(candidate.id));
    listed->set_heuristic_rank(candidate.heuristic_rank);
    for (const int note : NotesOf<NumericalNote>(candidate.numerical_notes)) {
      listed->add_numerical_notes(note);
    }
    for (const int note : NotesOf<BehaviorNote>(candidate.behavior_notes)) {
      listed->add_behavior_notes(note);
    }
    listed->set_find_us(candidate.find_us);
    listed->set_workspace_bytes(candidate.workspace_bytes);
    listed->set_deterministic(candidate.deterministic);
    listed_.push_back(candidate);
    RETURN_IF_ERROR(Send(reply));
  }
  return Finish(true, "");
}

absl::Status ReplaySession::Prepare(const worker::v1::Prepare& request) {
  int succeeded = 0;
  for (const int index : request.indexes()) {
    if (index < 0 || static_cast<size_t>(index) >= listed_.size()) {
      return Finish(false, "indexes: unknown candidate");
    }
    if (request.stop_after() > 0 && succeeded == request.stop_after()) break;
    RETURN_IF_ERROR(Touch(index));
    const Candidate& candidate = listed_[static_cast<size_t>(index)];
    worker::v1::Reply reply;
    worker::v1::Prepared* prepared = reply.mutable_prepared();
    prepared->set_index(index);
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
  worker::v1::Conditions* conditions = reply.mutable_conditions();
  conditions->set_known(true);
  conditions->set_compute_mode(1);
  return Send(reply);
}

absl::Status ReplaySession::Measure(const worker::v1::Measure& request) {
  RETURN_IF_ERROR(SendConditions());
  const absl::Time end = absl::Now() + absl::Milliseconds(request.time_budget_ms());
  for (int round = request.first_round(); round < request.first_round() + request.rounds();
       ++round) {
    if (absl::Now() >= end) return Finish(true, "", true);
    for (const int index : request.indexes()) {
      if (index < 0 || static_cast<size_t>(index) >= listed_.size()) {
        return Finish(false, "indexes: not prepared");
      }
      RETURN_IF_ERROR(Touch(index));
      const Candidate& candidate = listed_[static_cast<size_t>(index)];
      worker::v1::Reply reply;
      worker::v1::Sample* sample = reply.mutable_sample();
      sample->set_index(index);
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

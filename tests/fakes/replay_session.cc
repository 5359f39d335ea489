#include "tests/fakes/replay_session.h"

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/convert/record_codec.h"

namespace convtune {
namespace {

constexpr char kNotTimed[] = "was not timed in the recording";

}  // namespace

absl::Status ReplaySession::Hello(const worker::v1::Hello& /*request*/) {
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
  SetListed(listed_.size());
  return Finish(true, "");
}

void ReplaySession::Prepare(int index, worker::v1::Prepared* prepared) {
  const Candidate& candidate = listed_[static_cast<size_t>(index)];
  prepared->set_ok(candidate.usable());
  prepared->set_workspace_bytes(candidate.workspace_bytes);
  prepared->set_error_message(candidate.error_message);
}

void ReplaySession::FillConditions(v1::Conditions* conditions) {
  conditions->set_known(true);
  conditions->set_compute_mode(v1::COMPUTE_MODE_DEFAULT);
}

// What was recorded is right; it was judged then.
void ReplaySession::Check(int index, worker::v1::Checked* checked) {
  const Candidate& candidate = listed_[static_cast<size_t>(index)];
  checked->set_error(0);
  checked->set_capture(static_cast<v1::CaptureSupport>(candidate.capture));
  checked->set_gpu_us(Recording::TimeInRound(candidate, 0));
  if (checked->gpu_us() == 0) checked->set_error_message(kNotTimed);
  checked->set_host_us(candidate.host_us);
}

void ReplaySession::Run(int index, const worker::v1::Measure& /*how*/, worker::v1::Sample* sample) {
  const Candidate& candidate = listed_[static_cast<size_t>(index)];
  sample->set_gpu_us(Recording::TimeInRound(candidate, sample->round()));
  if (sample->gpu_us() == 0) sample->set_error_message(kNotTimed);
  sample->set_host_us(candidate.host_us);
  sample->set_sm_clock_mhz(candidate.sm_clock_mhz);
}

}  // namespace convtune

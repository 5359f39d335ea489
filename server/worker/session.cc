#include "server/worker/session.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/base/status_macros.h"
#include "proto/convert/record_codec.h"
#include "proto/convtune/worker/checker_version.h"
#include "server/worker/cudnn/cudnn_library.h"
#include "server/worker/session_proto.h"
#include "server/worker/timing/measure.h"

namespace convtune::worker {
namespace {

absl::Status Finish(const Session::Send& send, bool ok, absl::string_view message) {
  worker::v1::Reply reply;
  reply.set_last(true);
  reply.mutable_outcome()->set_ok(ok);
  reply.mutable_outcome()->set_message(Utf8(std::string(message)));
  return send(reply);
}

absl::Time DeadlineAfter(int64_t budget_ms) {
  return budget_ms > 0 ? absl::Now() + absl::Milliseconds(budget_ms) : absl::InfiniteFuture();
}

// What kept the clocks down between two looks, and may be over by the second.
uint32_t ReasonsBetween(const ConditionsLook& before, const ConditionsLook& after) {
  uint32_t reasons = 0;
  if (after.hot_ns > before.hot_ns) reasons |= static_cast<uint32_t>(ClockReason::kThermalSlowdown);
  if (after.capped_ns > before.capped_ns) reasons |= static_cast<uint32_t>(ClockReason::kPowerCap);
  return reasons;
}

}  // namespace

absl::Status Session::Handle(const worker::v1::Request& request, const Send& send) {
  if (!greeted_ && request.kind_case() != worker::v1::Request::kHello) {
    RETURN_IF_ERROR(Finish(send, false, "hello: must be the first request"));
    return absl::FailedPreconditionError("the first request was not Hello");
  }
  switch (request.kind_case()) {
    case worker::v1::Request::kHello:
      return HandleHello(request.hello(), send);
    case worker::v1::Request::kOpenProblem:
      return HandleOpen(request.open_problem(), send);
    case worker::v1::Request::kPrepare:
      return HandlePrepare(request.prepare(), send);
    case worker::v1::Request::kMeasure:
      return HandleMeasure(request.measure(), send);
    case worker::v1::Request::kCloseProblem:
      CloseProblem();
      return Finish(send, true, "");
    case worker::v1::Request::kReadConditions:
      RETURN_IF_ERROR(SendConditions(backend_->LookAtConditions(), send));
      return Finish(send, true, "");
    case worker::v1::Request::kCheck:
      return HandleCheck(request.check(), send);
    case worker::v1::Request::KIND_NOT_SET:
      break;
  }
  return Finish(send, false, "kind: a request that this worker does not know");
}

absl::Status Session::HandleHello(const worker::v1::Hello& hello, const Send& send) {
  if (hello.version() != CONVTUNE_VERSION) {
    const std::string message = absl::StrCat("version: the daemon's is \"", hello.version(),
                                             "\", this worker's is \"" CONVTUNE_VERSION "\"");
    RETURN_IF_ERROR(Finish(send, false, message));
    return absl::FailedPreconditionError(message);
  }
  greeted_ = true;
  SelfCheck check;
  if (hello.has_self_check()) {
    check = convtune::FromProto(hello.self_check());
  } else {
    const auto on_step = [&send](uint32_t step) {
      worker::v1::Reply reply;
      reply.mutable_self_checking()->set_step(step);
      return send(reply);
    };
    ASSIGN_OR_RETURN(check, backend_->CheckSelf(hello.lost_steps(), on_step));
  }
  // Of a kept self-check too: the libraries may be others than those it was of.
  if (const absl::Status mixture = cudnn::CheckLoadedCudnn(); check.known && !mixture.ok()) {
    RETURN_IF_ERROR(Finish(send, false, mixture.message()));
    return mixture;
  }
  backend_->Apply(check);
  if (trace_ != nullptr) trace_->PutWorker(backend_->environment(), backend_->provenance());
  worker::v1::Reply reply;
  reply.set_last(true);
  worker::v1::HelloReply* body = reply.mutable_hello();
  body->set_version(CONVTUNE_VERSION);
  body->set_environment_text(backend_->environment().ToText());
  body->set_has_gpu(backend_->has_gpu());
  body->set_checker_version(kCheckerVersion);
  if (check.known) *body->mutable_self_check() = convtune::ToProto(check);
  return send(reply);
}

absl::Status Session::HandleOpen(const worker::v1::OpenProblem& request, const Send& send) {
  CloseProblem();
  ListingOptions options;
  options.deadline = DeadlineAfter(request.time_budget_ms());
  options.graph_api = request.graph_api();
  options.legacy_api = request.legacy_api();
  options.max_candidates = request.max_candidates();
  const std::optional<ListingDepth> depth = DepthOf(request.listing());
  if (!depth.has_value()) {
    return Finish(send, false, "listing: must be STOCK, HEURISTICS or EXHAUSTIVE");
  }
  options.depth = *depth;
  if (!options.graph_api && !(options.legacy_api && backend_->has_gpu())) {
    return Finish(send, false,
                  options.legacy_api ? "legacy_api: legacy algorithms need a GPU"
                                     : "graph_api: one of graph_api and legacy_api must be set");
  }
  const absl::StatusOr<ConvProblem> problem = ConvProblem::Parse(request.problem_text());
  if (!problem.ok()) {
    return Finish(send, false, absl::StrCat("problem_text: ", problem.status().message()));
  }
  absl::StatusOr<std::unique_ptr<BackendProblem>> opened =
      backend_->Open(*problem, request.memory_budget_bytes());
  if (Failed(opened.status())) {
    return Finish(send, false, opened.status().message());
  }
  std::vector<CandidateId> asked;
  for (int i = 0; i < request.candidate_texts_size(); ++i) {
    const absl::StatusOr<CandidateId> id = ParseCandidateId(request.candidate_texts(i));
    if (!id.ok()) {
      return Finish(send, false, absl::StrCat("candidate_texts[", i, "]: ", id.status().message()));
    }
    asked.push_back(*id);
  }
  problem_ = *std::move(opened);
  if (trace_ != nullptr) trace_->PutProblem(problem->ToText());

  absl::Status sent = absl::OkStatus();
  const auto on_listed = [&](const Candidate& candidate) {
    worker::v1::Reply reply;
    reply.mutable_listed()->set_index(static_cast<int>(candidates_.size()));
    Fill(candidate, /*with_samples=*/false, reply.mutable_listed()->mutable_candidate());
    candidates_.push_back({candidate.id, false});
    sent = send(reply);
    return sent.ok();
  };
  const absl::StatusOr<ListingEnd> end = problem_->List(options, on_listed);
  if (!Failed(end.status()) && !end->refusals.empty()) backend_->Recover();
  RETURN_IF_ERROR(sent);
  for (const CandidateId& id : asked) {
    const bool listed = std::any_of(candidates_.begin(), candidates_.end(),
                                    [&id](const Listed& known) { return known.id == id; });
    Candidate candidate;
    candidate.id = id;
    if (!listed && !on_listed(candidate)) return sent;
  }
  if (!end.ok()) {
    return Finish(send, false, end.status().message());
  }
  worker::v1::Reply reply;
  reply.set_last(true);
  worker::v1::Outcome* outcome = reply.mutable_outcome();
  outcome->set_ok(!candidates_.empty() || end->out_of_time);
  outcome->set_message(Utf8(end->refusals));
  if (!outcome->ok() && end->refusals.empty()) {
    outcome->set_message("cuDNN lists no engine for this problem");
  }
  outcome->set_out_of_time(end->out_of_time);
  outcome->set_truncated(end->truncated);
  outcome->set_find_left_out(end->find_left_out);
  return send(reply);
}

absl::Status Session::HandlePrepare(const worker::v1::Prepare& request, const Send& send) {
  const std::string error = CheckIndexes(request.indexes(), false);
  if (!error.empty()) {
    return Finish(send, false, error);
  }
  const absl::Time deadline = DeadlineAfter(request.time_budget_ms());
  int succeeded = 0;
  worker::v1::Reply last;
  last.set_last(true);
  last.mutable_outcome()->set_ok(true);
  for (const int index : request.indexes()) {
    if (request.stop_after() > 0 && succeeded >= request.stop_after()) break;
    if (absl::Now() >= deadline) {
      last.mutable_outcome()->set_out_of_time(true);
      break;
    }
    worker::v1::Reply touching;
    touching.mutable_touching()->set_index(index);
    RETURN_IF_ERROR(send(touching));
    Listed& candidate = candidates_[static_cast<size_t>(index)];
    const absl::Time start = absl::Now();
    const absl::StatusOr<PreparedCandidate> result = problem_->Prepare(candidate.id);
    candidate.prepared = !Failed(result.status()) && !result->over_memory;
    succeeded += candidate.prepared ? 1 : 0;
    const absl::Duration took = absl::Now() - start;
    if (trace_ != nullptr) trace_->PutPrepared(index, candidate.id, result, took);
    worker::v1::Reply reply;
    *reply.mutable_prepared() = ToProto(index, result, took);
    RETURN_IF_ERROR(send(reply));
  }
  return send(last);
}

absl::Status Session::HandleCheck(const worker::v1::Check& request, const Send& send) {
  const std::string error = CheckIndexes(request.indexes(), true);
  if (!error.empty()) {
    return Finish(send, false, error);
  }
  std::vector<CandidateId> ids;
  for (const int index : request.indexes()) {
    ids.push_back(candidates_[static_cast<size_t>(index)].id);
  }
  const absl::Time deadline = DeadlineAfter(request.time_budget_ms());
  const absl::Status begun = problem_->BeginMeasure(ids);
  if (Failed(begun)) {
    return Finish(send, false, begun.message());
  }
  worker::v1::Reply last;
  last.set_last(true);
  last.mutable_outcome()->set_ok(true);
  for (const int index : request.indexes()) {
    if (absl::Now() >= deadline) {
      last.mutable_outcome()->set_out_of_time(true);
      break;
    }
    worker::v1::Reply touching;
    touching.mutable_touching()->set_index(index);
    RETURN_IF_ERROR(send(touching));
    const CandidateId& id = candidates_[static_cast<size_t>(index)].id;
    const absl::StatusOr<CheckedRun> run = problem_->Check(id);
    Failed(run.status());
    if (trace_ != nullptr) trace_->PutChecked(index, id, run);
    worker::v1::Reply reply;
    *reply.mutable_checked() = ToProto(index, run);
    RETURN_IF_ERROR(send(reply));
  }
  return send(last);
}

absl::Status Session::HandleMeasure(const worker::v1::Measure& request, const Send& send) {
  const std::string error = CheckIndexes(request.indexes(), true);
  if (!error.empty()) {
    return Finish(send, false, error);
  }
  const std::optional<RunMode> mode = ModeOf(request);
  if (!mode.has_value()) {
    return Finish(send, false, "launch, cache_state: must be numbers of their enumerations");
  }
  timing::MeasurePlan plan;
  plan.mode = *mode;
  plan.rounds = request.rounds();
  plan.first_round = request.first_round();
  plan.deadline = DeadlineAfter(request.time_budget_ms());
  for (const int index : request.indexes()) {
    plan.candidates.push_back({index, candidates_[static_cast<size_t>(index)].id});
  }
  timing::MeasureCallbacks callbacks;
  callbacks.on_touch = [&send](int index) {
    worker::v1::Reply reply;
    reply.mutable_touching()->set_index(index);
    return send(reply);
  };
  callbacks.on_sample = [&](int index, int round, const absl::StatusOr<TimedRun>& run) {
    Failed(run.status());
    if (trace_ != nullptr) {
      trace_->PutSample(index, candidates_[static_cast<size_t>(index)].id, round, *mode, run);
    }
    worker::v1::Reply reply;
    *reply.mutable_sample() = ToProto(index, round, run);
    return send(reply);
  };
  const absl::Status begun = problem_->BeginMeasure(plan.ids());
  if (Failed(begun)) {
    return Finish(send, false, begun.message());
  }
  const ConditionsLook before = backend_->LookAtConditions();
  RETURN_IF_ERROR(SendConditions(before, send));
  ASSIGN_OR_RETURN(const bool out_of_time, timing::RunRounds(problem_.get(), plan, callbacks));
  ConditionsLook after = backend_->LookAtConditions();
  after.conditions.clock_reasons |= ReasonsBetween(before, after);
  RETURN_IF_ERROR(SendConditions(std::move(after), send));
  worker::v1::Reply reply;
  reply.set_last(true);
  reply.mutable_outcome()->set_ok(true);
  reply.mutable_outcome()->set_out_of_time(out_of_time);
  return send(reply);
}

bool Session::Failed(const absl::Status& status) {
  if (!status.ok()) backend_->Recover();
  return !status.ok();
}

absl::Status Session::SendConditions(ConditionsLook look, const Send& send) {
  if (problem_ != nullptr) problem_->DescribeRuns(&look.conditions);
  if (trace_ != nullptr) trace_->PutConditions(look);
  worker::v1::Reply reply;
  Fill(look.conditions, reply.mutable_conditions());
  return send(reply);
}

std::string Session::CheckIndexes(const google::protobuf::RepeatedField<int>& indexes,
                                  bool must_be_prepared) const {
  if (problem_ == nullptr) {
    return "open_problem: no problem is open";
  }
  for (int i = 0; i < indexes.size(); ++i) {
    if (indexes[i] < 0 || static_cast<size_t>(indexes[i]) >= candidates_.size()) {
      return absl::StrCat("indexes[", i, "]: must be from 0 to ",
                          static_cast<int64_t>(candidates_.size()) - 1);
    }
    if (must_be_prepared && !candidates_[static_cast<size_t>(indexes[i])].prepared) {
      return absl::StrCat("indexes[", i, "]: candidate ", indexes[i], " is not prepared");
    }
  }
  return "";
}

void Session::CloseProblem() {
  problem_.reset();
  candidates_.clear();
}

}  // namespace convtune::worker

#include "server/worker/session.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/base/clock.h"
#include "proto/base/status_macros.h"
#include "proto/convert/record_codec.h"
#include "proto/model/tuning/tuning.h"
#include "server/worker/cudnn/cudnn_library.h"

namespace convtune::worker {
namespace {

absl::Status Finish(const Session::Send& send, worker::v1::Outcome outcome) {
  worker::v1::Reply reply;
  reply.set_last(true);
  *reply.mutable_outcome() = std::move(outcome);
  return send(reply);
}

absl::Status Finish(const Session::Send& send, bool ok, absl::string_view message) {
  worker::v1::Outcome outcome;
  outcome.set_ok(ok);
  outcome.set_message(Utf8(std::string(message)));
  return Finish(send, std::move(outcome));
}

absl::Status Touch(const Session::Send& send, int index) {
  worker::v1::Reply reply;
  reply.set_index(index);
  reply.mutable_touching();
  return send(reply);
}

// Writes why it failed into a Prepared, a Checked or a Sample.
template <typename Message>
void NoteFailure(const absl::Status& status, Message* message) {
  message->set_error_message(Utf8(std::string(status.message())));
  message->set_over_memory(absl::IsResourceExhausted(status));
}

SteadyTime DeadlineAfter(int64_t budget_ms) {
  return budget_ms > 0 ? SteadyTime::Now() + absl::Milliseconds(budget_ms)
                       : SteadyTime::InfiniteFuture();
}

// What kept the clocks down between two looks, and may be over by the second.
uint32_t ReasonsBetween(const ConditionsLook& before, const ConditionsLook& after) {
  uint32_t reasons = 0;
  if (after.hot_ns > before.hot_ns) reasons |= static_cast<uint32_t>(ClockReason::kThermalSlowdown);
  if (after.capped_ns > before.capped_ns) reasons |= static_cast<uint32_t>(ClockReason::kPowerCap);
  return reasons;
}

constexpr char kWarmUpProblem[] = "fwd,x=1x8x8x8,w=8x8x3x3,pad=1,nhwc,f16";

}  // namespace

absl::StatusOr<CandidateId> PrepareFirst(worker::v1::Listing depth, BackendProblem* problem) {
  worker::v1::OpenProblem request;
  request.set_listing(depth);
  request.set_graph_api(true);
  std::vector<CandidateId> ids;
  const auto take = [&ids](const Candidate& candidate) {
    ids.push_back(candidate.id);
    return true;
  };
  const worker::v1::Outcome end = problem->List(request, SteadyTime::InfiniteFuture(), take);
  absl::Status refused;
  for (const CandidateId& id : ids) {
    const absl::StatusOr<worker::v1::Prepared> prepared = problem->Prepare(id);
    if (prepared.ok() && !prepared->over_memory()) return id;
    refused.Update(prepared.status());
  }
  return absl::UnavailableError(
      absl::StrCat("nothing can be run: ", end.message(), refused.message()));
}

absl::Status WarmUp(Backend* backend) {
  ASSIGN_OR_RETURN(const ConvProblem problem, ConvProblem::Parse(kWarmUpProblem));
  ASSIGN_OR_RETURN(const std::unique_ptr<BackendProblem> opened, backend->Open(problem, 0));
  return PrepareFirst(worker::v1::LISTING_HEURISTICS, opened.get()).status();
}

absl::Status Session::Handle(const worker::v1::Request& request, const Send& send) {
  if (!greeted_ && request.kind_case() != worker::v1::Request::kHello) {
    RETURN_IF_ERROR(Finish(send, false, "hello: must be the first request"));
    return absl::FailedPreconditionError("the first request was not Hello");
  }
  const SteadyTime deadline = DeadlineAfter(request.time_budget_ms());
  switch (request.kind_case()) {
    case worker::v1::Request::kHello:
      return HandleHello(request.hello(), send);
    case worker::v1::Request::kOpenProblem:
      return HandleOpen(request.open_problem(), deadline, send);
    case worker::v1::Request::kPrepare:
    case worker::v1::Request::kCheck:
    case worker::v1::Request::kMeasure:
      return HandleCandidates(request, deadline, send);
    case worker::v1::Request::kCloseProblem:
      CloseProblem();
      return Finish(send, true, "");
    case worker::v1::Request::kReadConditions:
      RETURN_IF_ERROR(SendConditions(backend_->LookAtConditions(), send));
      return Finish(send, true, "");
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
      reply.set_self_checking(step);
      return send(reply);
    };
    ASSIGN_OR_RETURN(check, backend_->CheckSelf(hello.lost_steps(), on_step));
  }
  // Where the self-check was kept, too: the libraries may be others than those that it was of.
  if (absl::Status mixture = cudnn::CheckLoadedCudnn(); check.known() && !mixture.ok()) {
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
  if (check.known()) *body->mutable_self_check() = convtune::ToProto(check);
  return send(reply);
}

absl::Status Session::HandleOpen(const worker::v1::OpenProblem& request, SteadyTime deadline,
                                 const Send& send) {
  CloseProblem();
  if (!worker::v1::Listing_IsValid(request.listing()) ||
      request.listing() == worker::v1::LISTING_UNSPECIFIED) {
    return Finish(send, false, "listing: must be FIRST_CONFIGS, HEURISTICS or EXHAUSTIVE");
  }
  if (!request.graph_api() && !(request.legacy_api() && backend_->has_gpu())) {
    return Finish(send, false,
                  request.legacy_api() ? "legacy_api: legacy algorithms need a GPU"
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
    reply.set_index(static_cast<int>(candidates_.size()));
    Fill(candidate, /*with_samples=*/false, reply.mutable_listed());
    candidates_.push_back({candidate.id, false});
    sent = send(reply);
    return sent.ok();
  };
  worker::v1::Outcome end = problem_->List(request, deadline, on_listed);
  if (!end.message().empty()) backend_->Recover();
  RETURN_IF_ERROR(sent);
  for (const CandidateId& id : asked) {
    const bool listed = std::any_of(candidates_.begin(), candidates_.end(),
                                    [&id](const Listed& known) { return known.id == id; });
    Candidate candidate;
    candidate.id = id;
    if (!listed && !on_listed(candidate)) return sent;
  }
  end.set_ok(!candidates_.empty() || end.out_of_time());
  if (!end.ok() && end.message().empty()) {
    end.set_message("cuDNN lists no engine for this problem");
  }
  return Finish(send, std::move(end));
}

absl::Status Session::DoEach(
    const google::protobuf::RepeatedField<int>& indexes, SteadyTime deadline, const Send& send,
    const std::function<absl::StatusOr<bool>(int index, Listed* listed)>& work) {
  worker::v1::Outcome outcome;
  outcome.set_ok(true);
  for (const int index : indexes) {
    if (SteadyTime::Now() >= deadline) {
      outcome.set_out_of_time(true);
      break;
    }
    RETURN_IF_ERROR(Touch(send, index));
    ASSIGN_OR_RETURN(const bool more, work(index, &candidates_[static_cast<size_t>(index)]));
    if (!more) break;
  }
  return Finish(send, std::move(outcome));
}

absl::Status Session::HandleCandidates(const worker::v1::Request& request, SteadyTime deadline,
                                       const Send& send) {
  const std::string error = CheckIndexes(request.indexes(), !request.has_prepare());
  if (!error.empty()) return Finish(send, false, error);
  if (request.has_prepare()) return Prepare(request, deadline, send);
  worker::v1::Measure how = request.measure();
  if (how.launch() == 0) how.set_launch(convtune::v1::LAUNCH_MODE_EAGER);
  if (how.cache_state() == 0) how.set_cache_state(convtune::v1::CACHE_STATE_INPUT_HOT);
  if (!convtune::v1::LaunchMode_IsValid(how.launch()) ||
      !convtune::v1::CacheState_IsValid(how.cache_state())) {
    return Finish(send, false, "launch, cache_state: must be numbers of their enumerations");
  }
  std::vector<CandidateId> ids;
  for (const int index : request.indexes()) {
    ids.push_back(candidates_[static_cast<size_t>(index)].id);
  }
  if (const absl::Status begun = problem_->BeginMeasure(ids); Failed(begun)) {
    return Finish(send, false, begun.message());
  }
  return request.has_check() ? Check(request, deadline, send)
                             : Measure(request, how, deadline, send);
}

absl::Status Session::Prepare(const worker::v1::Request& request, SteadyTime deadline,
                              const Send& send) {
  const int enough = request.prepare().stop_after();
  int succeeded = 0;
  const auto prepare = [&](int index, Listed* listed) -> absl::StatusOr<bool> {
    const SteadyTime start = SteadyTime::Now();
    const absl::StatusOr<worker::v1::Prepared> result = problem_->Prepare(listed->id);
    listed->prepared = !Failed(result.status()) && !result->over_memory();
    succeeded += listed->prepared ? 1 : 0;
    const absl::Duration took = SteadyTime::Now() - start;
    if (trace_ != nullptr) trace_->PutPrepared(index, listed->id, result, took);
    worker::v1::Reply reply;
    worker::v1::Prepared* prepared = reply.mutable_prepared();
    if (result.ok()) {
      *prepared = *result;
    } else {
      NoteFailure(result.status(), prepared);
    }
    reply.set_index(index);
    prepared->set_ok(listed->prepared);
    RETURN_IF_ERROR(send(reply));
    return enough <= 0 || succeeded < enough;
  };
  return DoEach(request.indexes(), deadline, send, prepare);
}

absl::Status Session::Check(const worker::v1::Request& request, SteadyTime deadline,
                            const Send& send) {
  const auto check = [&](int index, Listed* listed) -> absl::StatusOr<bool> {
    const absl::StatusOr<worker::v1::Checked> result = problem_->Check(listed->id);
    const bool failed = Failed(result.status());
    if (trace_ != nullptr) trace_->PutChecked(index, listed->id, result);
    worker::v1::Reply reply;
    if (failed) {
      NoteFailure(result.status(), reply.mutable_checked());
    } else {
      *reply.mutable_checked() = *result;
    }
    reply.set_index(index);
    RETURN_IF_ERROR(send(reply));
    return true;
  };
  return DoEach(request.indexes(), deadline, send, check);
}

absl::Status Session::Measure(const worker::v1::Request& request, const worker::v1::Measure& how,
                              SteadyTime deadline, const Send& send) {
  const ConditionsLook before = backend_->LookAtConditions();
  RETURN_IF_ERROR(SendConditions(before, send));
  ASSIGN_OR_RETURN(const bool out_of_time, RunRounds(request.indexes(), how, deadline, send));
  ConditionsLook after = backend_->LookAtConditions();
  after.conditions.clock_reasons |= ReasonsBetween(before, after);
  RETURN_IF_ERROR(SendConditions(std::move(after), send));
  worker::v1::Outcome outcome;
  outcome.set_ok(true);
  outcome.set_out_of_time(out_of_time);
  return Finish(send, std::move(outcome));
}

absl::StatusOr<bool> Session::RunRounds(const google::protobuf::RepeatedField<int>& indexes,
                                        const worker::v1::Measure& how, SteadyTime deadline,
                                        const Send& send) {
  const auto count = static_cast<unsigned>(indexes.size());
  const int first = how.first_round();
  std::set<int> failed;
  int touched = -1;
  for (int round = first; round < first + how.rounds(); ++round) {
    for (unsigned i = 0; i < count; ++i) {
      const int index = indexes[static_cast<int>((i + static_cast<unsigned>(round)) % count)];
      if (failed.contains(index)) continue;
      if (SteadyTime::Now() >= deadline) return true;
      if (std::exchange(touched, index) != index) RETURN_IF_ERROR(Touch(send, index));
      const CandidateId& id = candidates_[static_cast<size_t>(index)].id;
      const absl::StatusOr<TimedRun> run = problem_->Run(id, how);
      if (Failed(run.status())) failed.insert(index);
      if (trace_ != nullptr) trace_->PutSample(index, id, round, how, run);
      worker::v1::Reply reply;
      worker::v1::Sample* sample = reply.mutable_sample();
      reply.set_index(index);
      sample->set_round(round);
      if (run.ok()) {
        sample->set_gpu_us(run->gpu_us);
        sample->set_host_us(run->host_us);
        sample->set_sm_clock_mhz(run->sm_clock_mhz);
        sample->set_blocked(run->blocked);
      } else {
        NoteFailure(run.status(), sample);
      }
      RETURN_IF_ERROR(send(reply));
    }
  }
  return false;
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

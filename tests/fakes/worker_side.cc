#include "tests/fakes/worker_side.h"

#include "proto/base/framing.h"
#include "proto/base/status_macros.h"

namespace convtune {

absl::Status WorkerSide::Serve() {
  while (true) {
    const absl::StatusOr<std::string> frame = ReadFrame(fd_, SteadyTime::InfiniteFuture());
    if (absl::IsOutOfRange(frame.status())) return absl::OkStatus();
    RETURN_IF_ERROR(frame.status());
    worker::v1::Request request;
    if (!request.ParseFromString(*frame)) return absl::DataLossError("unreadable request");
    RETURN_IF_ERROR(Handle(request));
  }
}

absl::Status WorkerSide::Handle(const worker::v1::Request& request) {
  if (request.has_hello()) return Hello(request.hello());
  if (request.has_open_problem()) return Open(request.open_problem());
  end_ = SteadyTime::Now() + absl::Milliseconds(request.time_budget_ms());
  const absl::StatusOr<bool> in_time = Answer(request);
  if (absl::IsInvalidArgument(in_time.status())) {
    return Finish(false, std::string(in_time.status().message()));
  }
  RETURN_IF_ERROR(in_time.status());
  return Finish(true, "", !*in_time);
}

absl::StatusOr<bool> WorkerSide::Answer(const worker::v1::Request& request) {
  switch (request.kind_case()) {
    case worker::v1::Request::kPrepare:
      OnRequest("prepare");
      return ForEach(request, false, [this](int index, worker::v1::Reply* reply) {
        Prepare(index, reply->mutable_prepared());
        prepared_[static_cast<size_t>(index)] = reply->prepared().ok();
      });
    case worker::v1::Request::kCheck:
      OnRequest("check");
      return ForEach(request, true, [this](int index, worker::v1::Reply* reply) {
        Check(index, reply->mutable_checked());
      });
    case worker::v1::Request::kMeasure:
      OnRequest("measure");
      RETURN_IF_ERROR(SendConditions());
      return Measure(request);
    case worker::v1::Request::kReadConditions:
      OnRequest("conditions");
      RETURN_IF_ERROR(SendConditions());
      return true;
    case worker::v1::Request::kCloseProblem:
      OnRequest("close");
      return true;
    default:
      return absl::InvalidArgumentError("the request has no kind");
  }
}

absl::StatusOr<bool> WorkerSide::ForEach(
    const worker::v1::Request& request, bool prepared,
    const std::function<void(int index, worker::v1::Reply*)>& answer) {
  int succeeded = 0;
  for (const int index : request.indexes()) {
    if (index < 0 || static_cast<size_t>(index) >= prepared_.size() ||
        (prepared && !prepared_[static_cast<size_t>(index)])) {
      return absl::InvalidArgumentError("indexes: a candidate that is not listed or not prepared");
    }
    if (SteadyTime::Now() >= end_) return false;
    const int most = request.prepare().stop_after();
    if (most > 0 && succeeded == most) break;
    RETURN_IF_ERROR(Touch(index));
    worker::v1::Reply reply;
    reply.set_index(index);
    answer(index, &reply);
    succeeded += reply.prepared().ok() ? 1 : 0;
    RETURN_IF_ERROR(Send(reply));
  }
  return true;
}

absl::StatusOr<bool> WorkerSide::Measure(const worker::v1::Request& request) {
  const worker::v1::Measure& how = request.measure();
  for (int round = how.first_round(); round < how.first_round() + how.rounds(); ++round) {
    const SteadyTime end = end_;
    if (SteadyTime::Now() >= end) return false;
    OnRound();
    end_ = SteadyTime::InfiniteFuture();  // a round is whole
    const auto run = [&](int index, worker::v1::Reply* reply) {
      reply->mutable_sample()->set_round(round);
      Run(index, how, reply->mutable_sample());
    };
    RETURN_IF_ERROR(ForEach(request, true, run).status());
    end_ = end;
  }
  return true;
}

absl::Status WorkerSide::SendConditions() {
  worker::v1::Reply reply;
  FillConditions(reply.mutable_conditions());
  return Send(reply);
}

absl::Status WorkerSide::Send(const worker::v1::Reply& reply) {
  return WriteFrame(fd_, reply.SerializeAsString());
}

absl::Status WorkerSide::Finish(bool ok, const std::string& message, bool out_of_time) {
  worker::v1::Reply reply;
  reply.set_last(true);
  reply.mutable_outcome()->set_ok(ok);
  reply.mutable_outcome()->set_message(message);
  reply.mutable_outcome()->set_out_of_time(out_of_time);
  return Send(reply);
}

absl::Status WorkerSide::Touch(int index) {
  worker::v1::Reply reply;
  reply.set_index(index);
  reply.mutable_touching();
  return Send(reply);
}

}  // namespace convtune

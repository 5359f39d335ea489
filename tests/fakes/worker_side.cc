#include "tests/fakes/worker_side.h"

#include "proto/base/clock.h"
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

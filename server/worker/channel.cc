#include "server/worker/channel.h"

#include <unistd.h>

#include <string>

#include "absl/time/time.h"
#include "proto/base/framing.h"
#include "proto/base/status_macros.h"

namespace convtune::worker {

Channel::~Channel() { close(fd_); }

absl::StatusOr<worker::v1::Request> Channel::Receive() {
  ASSIGN_OR_RETURN(const std::string frame, ReadFrame(fd_, absl::InfiniteFuture()));
  worker::v1::Request request;
  if (!request.ParseFromString(frame)) {
    return absl::DataLossError("a message that is no request");
  }
  return request;
}

absl::Status Channel::Send(const worker::v1::Reply& reply) {
  return WriteFrame(fd_, reply.SerializeAsString());
}

}  // namespace convtune::worker

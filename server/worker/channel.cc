#include "server/worker/channel.h"

#include <unistd.h>

#include <string>

#include "absl/time/time.h"
#include "proto/base/framing.h"
#include "proto/base/status_macros.h"

namespace convtune {

Channel::~Channel() { close(fd_); }

absl::StatusOr<worker::Request> Channel::Receive() {
  ASSIGN_OR_RETURN(const std::string frame, ReadFrame(fd_, absl::InfiniteFuture()));
  worker::Request request;
  if (!request.ParseFromString(frame)) {
    return absl::DataLossError("a message that is no request");
  }
  return request;
}

absl::Status Channel::Send(const worker::Reply& reply) {
  return WriteFrame(fd_, reply.SerializeAsString());
}

}  // namespace convtune

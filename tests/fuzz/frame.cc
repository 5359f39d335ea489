// The worker protocol: frames off a socket, and the messages in them.
#include <sys/socket.h>
#include <unistd.h>

#include "convtune/worker/worker.pb.h"
#include "proto/base/clock.h"
#include "proto/base/framing.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // What does not fit a socket's buffer would block this one thread.
  if (size > 64 * 1024) return 0;
  int fds[2];
  convtune::fuzz::Require(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
  convtune::fuzz::Require(write(fds[0], data, size) == static_cast<ssize_t>(size));
  close(fds[0]);
  while (true) {
    const auto frame = convtune::ReadFrame(fds[1], convtune::SteadyTime::Now() + absl::Seconds(5));
    if (!frame.ok()) {
      convtune::fuzz::Require(absl::IsOutOfRange(frame.status()) ||
                              absl::IsDataLoss(frame.status()));
      break;
    }
    convtune::worker::v1::Reply reply;
    if (reply.ParseFromString(*frame)) {
      convtune::worker::v1::Reply again;
      convtune::fuzz::Require(again.ParseFromString(reply.SerializeAsString()));
    }
  }
  close(fds[1]);
  return 0;
}

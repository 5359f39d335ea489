// A Channel is the worker's end of the socket to the daemon.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "convtune/worker/worker.pb.h"

namespace convtune::worker {

// Owns the descriptor. Not thread-safe.
class Channel {
 public:
  explicit Channel(int fd) : fd_(fd) {}
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  // Blocks until a request arrives. OUT_OF_RANGE: the daemon closed its end;
  // DATA_LOSS: what arrived is no request.
  absl::StatusOr<worker::v1::Request> Receive();
  // OUT_OF_RANGE: the daemon closed its end.
  absl::Status Send(const worker::v1::Reply& reply);

 private:
  const int fd_;
};

}  // namespace convtune::worker

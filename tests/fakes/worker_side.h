// The worker's side of the protocol: frames in and out.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "convtune/worker/worker.pb.h"

namespace convtune {

// Serves one connection.
class WorkerSide {
 public:
  explicit WorkerSide(int fd) : fd_(fd) {}
  virtual ~WorkerSide() = default;
  WorkerSide(const WorkerSide&) = delete;
  WorkerSide& operator=(const WorkerSide&) = delete;

  // Returns when the daemon closes the connection.
  absl::Status Serve();

 protected:
  virtual absl::Status Handle(const worker::v1::Request& request) = 0;

  absl::Status Send(const worker::v1::Reply& reply);
  // The last reply to a request.
  absl::Status Finish(bool ok, const std::string& message, bool out_of_time = false);
  absl::Status Touch(int index);

  const int fd_;
};

}  // namespace convtune

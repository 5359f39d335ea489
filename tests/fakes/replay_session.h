// The worker's side of the protocol, answered from a recording.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "convtune/worker/worker.pb.h"
#include "tests/fakes/recording.h"

namespace convtune {

// Serves one connection: the candidates of the recorded tunings, and their
// samples round by round, so that the same decisions see the same times. A
// problem that was not recorded is refused.
class ReplaySession {
 public:
  ReplaySession(int fd, Recording recording) : fd_(fd), recording_(std::move(recording)) {}

  // Returns when the daemon closes the connection.
  absl::Status Serve();

 private:
  absl::Status Handle(const worker::Request& request);
  absl::Status Hello();
  absl::Status Open(const worker::OpenProblem& request);
  absl::Status Prepare(const worker::Prepare& request);
  absl::Status Measure(const worker::Measure& request);
  absl::Status SendConditions();
  absl::Status Finish(bool ok, const std::string& message, bool out_of_time = false);
  absl::Status Send(const worker::Reply& reply);
  absl::Status Touch(int index);

  const int fd_;
  const Recording recording_;
  const Tuning* tuning_ = nullptr;
  std::vector<Candidate> listed_;
};

}  // namespace convtune

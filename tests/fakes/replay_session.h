// The worker's side of the protocol, answered from a recording.
#pragma once

#include <string>
#include <vector>

#include "tests/fakes/recording.h"
#include "tests/fakes/worker_side.h"

namespace convtune {

// Serves one connection: the candidates of the recorded tunings, and their
// samples round by round, so that the same decisions see the same times. A
// problem that was not recorded is refused.
class ReplaySession : public WorkerSide {
 public:
  ReplaySession(int fd, Recording recording) : WorkerSide(fd), recording_(std::move(recording)) {}

 private:
  absl::Status Handle(const worker::v1::Request& request) override;
  absl::Status Hello();
  absl::Status Open(const worker::v1::OpenProblem& request);
  absl::Status Prepare(const worker::v1::Request& request);
  absl::Status Check(const worker::v1::Request& request);
  absl::Status Measure(const worker::v1::Request& request);
  absl::Status SendConditions();

  const Recording recording_;
  const Tuning* tuning_ = nullptr;
  std::vector<Candidate> listed_;
};

}  // namespace convtune

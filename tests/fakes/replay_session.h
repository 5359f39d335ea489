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
  absl::Status Hello(const worker::v1::Hello& request) override;
  absl::Status Open(const worker::v1::OpenProblem& request) override;
  void Prepare(int index, worker::v1::Prepared* prepared) override;
  void Check(int index, worker::v1::Checked* checked) override;
  void Run(int index, const worker::v1::Measure& how, worker::v1::Sample* sample) override;
  void FillConditions(v1::Conditions* conditions) override;

  const Recording recording_;
  const Tuning* tuning_ = nullptr;
  std::vector<Candidate> listed_;
};

}  // namespace convtune

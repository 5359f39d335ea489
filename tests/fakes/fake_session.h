// The fake worker's side of the protocol.
#pragma once

#include <string>
#include <vector>

#include "tests/fakes/fake_script.h"
#include "tests/fakes/worker_side.h"

namespace convtune {

// Serves one connection. Candidates are engine configs whose sample times,
// notes and workspaces follow from the script's seed, the problem and the
// candidate's number alone.
class FakeSession : public WorkerSide {
 public:
  FakeSession(int fd, FakeScript script) : WorkerSide(fd), script_(std::move(script)) {}

 private:
  absl::Status Handle(const worker::Request& request) override;
  absl::Status Hello();
  absl::Status Open(const worker::OpenProblem& request);
  absl::Status Prepare(const worker::Prepare& request);
  absl::Status Check(const worker::Check& request);
  absl::Status Measure(const worker::Measure& request);
  absl::Status SendConditions();
  // Does what the script says, if this is the place.
  void MaybeFault(const std::string& where, int index);
  void Log(const std::string& kind) const;

  const FakeScript script_;
  std::string problem_;
  worker::Listing listing_ = worker::LISTING_UNSPECIFIED;
  int listed_ = 0;
  int looks_ = 0;  // at the card
  std::vector<bool> prepared_;
};

// "gpu:0" or "profile:..." as the environment's text, for a device that the
// script does not name.
std::string FakeEnvironmentText(const std::string& device);

}  // namespace convtune

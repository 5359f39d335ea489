// The fake worker's side of the protocol.
#pragma once

#include <cstdint>
#include <string>

#include "tests/fakes/fake_script.h"
#include "tests/fakes/worker_side.h"

namespace convtune {

// Traits of a candidate, the same in every process.
struct FakeTraits {
  double base_us;
  int64_t workspace;
  bool tensor_core;
  bool nondeterministic;
};

// Serves one connection. Candidates are engine configs whose sample times,
// notes and workspaces follow from the script's seed, the problem and the
// candidate's number alone, and as many legacy algorithms as the script says.
class FakeSession : public WorkerSide {
 public:
  FakeSession(int fd, FakeScript script) : WorkerSide(fd), script_(std::move(script)) {}

 private:
  absl::Status Hello(const worker::v1::Hello& request) override;
  absl::Status Open(const worker::v1::OpenProblem& request) override;
  void Prepare(int index, worker::v1::Prepared* prepared) override;
  void Check(int index, worker::v1::Checked* checked) override;
  void Run(int index, const worker::v1::Measure& how, worker::v1::Sample* sample) override;
  void FillConditions(v1::Conditions* conditions) override;
  void OnRequest(const std::string& kind) override { Log(kind); }
  void OnRound() override;
  // The mask of the self-check that the script says, and of the lost steps.
  absl::StatusOr<uint32_t> CheckSelf(uint32_t lost_steps);
  // Does what the script says, if this is the place.
  void MaybeFault(const std::string& where, int index);
  void Log(const std::string& kind) const;
  FakeTraits TraitsOfListed(int index) const;

  const FakeScript script_;
  std::string problem_;
  worker::v1::Listing listing_ = worker::v1::LISTING_UNSPECIFIED;
  int configs_ = 0;  // the first of what is listed
  int listed_ = 0;
  int looks_ = 0;  // at the GPU
};

// "gpu:0" or "profile:..." as the environment's text, for a device that the
// script does not name.
std::string FakeEnvironmentText(const std::string& device);

}  // namespace convtune

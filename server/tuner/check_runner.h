// What is done before candidates are timed: each runs once, and what it
// computed is judged.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/model/candidate.h"
#include "proto/model/conv_problem.h"
#include "server/tuner/decision/correctness.h"
#include "server/tuner/worker_client.h"

namespace convtune {

// Not thread-safe.
class CheckRunner {
 public:
  // `candidates`, by the worker's index, and `client` outlive it. Those that
  // are kFinalized are checked. REQUIRES: client->checks_results().
  CheckRunner(const ConvProblem& problem, std::map<int, Candidate>* candidates,
              WorkerClient* client);

  // Checks, each API's stock choice first and then in the order of cuDNN's
  // heuristic, until `end`, and writes what was found into the candidates, also
  // when it ends with an error: kFailed if it did not run, kQuarantined if its
  // result is wrong. Errors are the client's.
  absl::Status Run(absl::Time end);

  // Those whose results are right, or could not be judged, and that are worth
  // more than the run they had.
  const std::vector<int>& passed() const { return passed_; }
  // Those whose results are wrong, with the reason.
  const std::vector<std::pair<int, std::string>>& wrong() const { return wrong_; }
  // Why results could not be judged; empty if they could.
  const std::string& doubt() const { return doubt_; }
  // What the runs took, by index; only better than nothing.
  const std::map<int, worker::Sample>& warm_runs() const { return warm_runs_; }

 private:
  void Take(const worker::Checked& checked);
  void Judge();
  // Takes what was given up after its first run out of passed(): that run is its
  // only sample.
  void LeaveHopeless();

  const ConvProblem& problem_;
  std::map<int, Candidate>* const candidates_;
  WorkerClient* const client_;
  std::map<int, OutputReport> reports_;
  std::map<int, worker::Sample> warm_runs_;
  std::set<int> hopeless_;
  std::vector<int> passed_;
  std::vector<std::pair<int, std::string>> wrong_;
  std::string doubt_;
};

}  // namespace convtune

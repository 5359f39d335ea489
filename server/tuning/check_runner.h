// A CheckRunner runs each candidate once before candidates are timed, and judges
// what it computed.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/base/clock.h"
#include "proto/model/problem/conv_problem.h"
#include "proto/model/tuning/candidate.h"
#include "proto/model/tuning/self_check.h"
#include "proto/model/tuning/tuning.h"
#include "server/decision/correctness.h"
#include "server/supervisor/worker_client.h"

namespace convtune::tuning {

// Not thread-safe.
class CheckRunner {
 public:
  // `candidates`, by the worker's index, and the others outlive it. Those that
  // are kFinalized are checked. `quarantined`: of the problem, from before; they
  // vote as they did then. Results that `self_check` forbids to judge are unjudged.
  CheckRunner(const ConvProblem& problem, const std::map<CandidateId, QuarantineEntry>& quarantined,
              const SelfCheck& self_check, std::map<int, Candidate>* candidates,
              supervisor::WorkerClient* client);

  // Checks, each API's stock choice first and then in the order of cuDNN's
  // heuristic, until `end`, and writes what was found into the candidates, also
  // when it ends with an error: kFailed if it did not run, kQuarantined if its
  // result is wrong, kUnjudged if that could not be found out, but for the stock
  // choices, which stay what others are compared with. Errors are the client's.
  absl::Status Run(SteadyTime end);

  // Whom to time: those whose results are right and that are worth more than the
  // run they had, and stock choices that could not be judged. Nobody, where no
  // result was found to be right.
  const std::vector<int>& passed() const { return passed_; }
  // Those whose results are wrong; without key and time.
  const std::vector<QuarantineEntry>& wrong() const { return wrong_; }
  const decision::Doubt& doubt() const { return doubt_; }
  // What the worker reports of those that ran, by index; their times are only better than
  // nothing.
  const std::map<int, worker::v1::Checked>& reports() const { return reports_; }

 private:
  void Take(const worker::v1::Reply& reply);
  void Judge();
  void LeaveUnjudged(int index, const std::string& message);
  // Takes what was given up after its first run out of passed(): that run is its
  // only sample.
  void LeaveHopeless();

  const ConvProblem& problem_;
  const std::map<CandidateId, QuarantineEntry>& quarantined_;
  const SelfCheck& self_check_;
  std::map<int, Candidate>* const candidates_;
  supervisor::WorkerClient* const client_;
  std::map<int, worker::v1::Checked> reports_;
  std::set<const Candidate*> stocks_;  // of each API that has any that ran
  std::vector<int> passed_;
  std::vector<QuarantineEntry> wrong_;
  decision::Doubt doubt_;
};

}  // namespace convtune::tuning

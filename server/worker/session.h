// A Session answers the daemon's requests: the worker's side of the protocol,
// without its I/O.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "convtune/worker/worker.pb.h"
#include "proto/base/clock.h"
#include "server/worker/backend.h"
#include "server/worker/trace.h"

namespace convtune::worker {

// Answers requests with what the backend says. Not thread-safe.
class Session {
 public:
  // Delivers one reply. A status other than OK ends the request.
  using Send = std::function<absl::Status(const worker::v1::Reply&)>;

  // `backend` and `trace`, which may be null, outlive the session.
  explicit Session(Backend* backend, Trace* trace = nullptr) : backend_(backend), trace_(trace) {}

  // Sends all replies to one request, the last one marked. Errors are those of
  // `send`, and FAILED_PRECONDITION, after the reply, when the session cannot
  // go on: its first request was no Hello, or the daemon's version is
  // another. A request that fails in itself is reported in its Outcome.
  absl::Status Handle(const worker::v1::Request& request, const Send& send);

 private:
  struct Listed {
    CandidateId id;
    bool prepared = false;
  };

  absl::Status HandleHello(const worker::v1::Hello& hello, const Send& send);
  absl::Status HandleOpen(const worker::v1::OpenProblem& request, SteadyTime deadline,
                          const Send& send);
  // Answers a Prepare, a Check or a Measure.
  absl::Status HandleCandidates(const worker::v1::Request& request, SteadyTime deadline,
                                const Send& send);
  absl::Status Prepare(const worker::v1::Request& request, SteadyTime deadline, const Send& send);
  absl::Status Check(const worker::v1::Request& request, SteadyTime deadline, const Send& send);
  absl::Status Measure(const worker::v1::Request& request, const worker::v1::Measure& how,
                       SteadyTime deadline, const Send& send);
  // Calls `work` for each index, behind a reply that names the candidate, until it returns
  // false or the deadline passes, and sends the outcome.
  absl::Status DoEach(const google::protobuf::RepeatedField<int>& indexes, SteadyTime deadline,
                      const Send& send,
                      const std::function<absl::StatusOr<bool>(int index, Listed* listed)>& work);
  // Runs each candidate once per round; round n starts with the candidate n, counted around.
  // One that fails is left out from then on. Returns whether the deadline, which is looked at
  // before every run, ended it early.
  absl::StatusOr<bool> RunRounds(const google::protobuf::RepeatedField<int>& indexes,
                                 const worker::v1::Measure& how, SteadyTime deadline,
                                 const Send& send);
  // Returns whether it failed; if so has the backend recover, which comes before any report.
  bool Failed(const absl::Status& status);
  // Adds what there is to say of the problem's runs.
  absl::Status SendConditions(ConditionsLook look, const Send& send);
  // Error for people, empty if every index names a listed candidate (and, if
  // asked, a prepared one).
  std::string CheckIndexes(const google::protobuf::RepeatedField<int>& indexes,
                           bool must_be_prepared) const;
  void CloseProblem();

  Backend* const backend_;
  Trace* const trace_;
  bool greeted_ = false;
  std::unique_ptr<BackendProblem> problem_;
  std::vector<Listed> candidates_;
};

// Lists graph candidates to this depth and prepares the first that can be run, since not every
// engine can be built for every problem. UNAVAILABLE, in cuDNN's words, where none can.
absl::StatusOr<CandidateId> PrepareFirst(worker::v1::Listing depth, BackendProblem* problem);

// Asks the heuristics for a small convolution and builds the first plan that can
// be built, so that cuDNN loads its heuristics and engines: time that would be
// missing from the first tuning's budget. Runs nothing. Errors are PrepareFirst's and Open's; the
// backend is none the worse for them.
absl::Status WarmUp(Backend* backend);

}  // namespace convtune::worker

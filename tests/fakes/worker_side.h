// The worker's side of the protocol, without a GPU.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "convtune/worker/worker.pb.h"
#include "proto/base/clock.h"

namespace convtune {

// A WorkerSide serves one connection: frames in and out, the candidates of a request one after
// the other, within its budget. What is said of each is its subclass's.
class WorkerSide {
 public:
  explicit WorkerSide(int fd) : fd_(fd) {}
  virtual ~WorkerSide() = default;
  WorkerSide(const WorkerSide&) = delete;
  WorkerSide& operator=(const WorkerSide&) = delete;

  // Returns when the daemon closes the connection.
  absl::Status Serve();

 protected:
  virtual absl::Status Hello(const worker::v1::Hello& request) = 0;
  // Sends the candidates, says how many there are with SetListed, and finishes.
  virtual absl::Status Open(const worker::v1::OpenProblem& request) = 0;
  // Of each candidate, once it is touched.
  virtual void Prepare(int index, worker::v1::Prepared* prepared) = 0;
  virtual void Check(int index, worker::v1::Checked* checked) = 0;
  virtual void Run(int index, const worker::v1::Measure& how, worker::v1::Sample* sample) = 0;
  virtual void FillConditions(v1::Conditions* conditions) = 0;
  // Told of each request that is no handshake and no listing, and before each round.
  virtual void OnRequest(const std::string& /*kind*/) {}
  virtual void OnRound() {}

  void SetListed(size_t count) { prepared_.assign(count, false); }
  absl::Status Send(const worker::v1::Reply& reply);
  // The last reply to a request.
  absl::Status Finish(bool ok, const std::string& message, bool out_of_time = false);
  absl::Status Touch(int index);

  const int fd_;
  SteadyTime end_ = SteadyTime::InfiniteFuture();  // of the budget of the request

 private:
  absl::Status Handle(const worker::v1::Request& request);
  // True if there was time for all of it; INVALID_ARGUMENT is what the request is refused for.
  absl::StatusOr<bool> Answer(const worker::v1::Request& request);
  absl::StatusOr<bool> Measure(const worker::v1::Request& request);
  absl::Status SendConditions();
  // Calls `answer` for each index, and sends the reply; true while there is time.
  absl::StatusOr<bool> ForEach(const worker::v1::Request& request, bool prepared,
                               const std::function<void(int index, worker::v1::Reply*)>& answer);

  std::vector<bool> prepared_;  // of what is listed
};

}  // namespace convtune

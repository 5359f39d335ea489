// The daemon's side of the worker protocol.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "convtune/worker/worker.pb.h"
#include "proto/convtune/worker/protocol_version.h"
#include "server/tuner/cancel_token.h"
#include "server/tuner/worker_process.h"

namespace convtune {

// Why a session ended before it was closed.
struct WorkerLoss {
  std::string reason;  // "signal 11 (SIGSEGV)", "hung for 30s", ...
  bool killed_from_outside = false;
  std::optional<int> suspect;  // index of the candidate that was being touched
};

// One session with one worker. One owner thread; see WorkerProcess.
//
// Errors of the calls: ABORTED if the worker died, hung or answered nonsense
// (then it is gone, and loss() says why); CANCELLED if the token was cancelled
// (then it was killed); FAILED_PRECONDITION in the worker's words if it refused
// the request.
class WorkerClient {
 public:
  struct Options {
    std::vector<std::string> worker_argv;
    std::string environment_text;  // what the worker must say it is
    absl::Duration hang_timeout;   // see Tuner::Options
    const CancelToken* cancel = nullptr;
  };

  // Starts the worker and shakes hands. Errors: UNAVAILABLE with the reason,
  // or CANCELLED.
  static absl::StatusOr<std::unique_ptr<WorkerClient>> Start(Options options);

  const worker::HelloReply& hello() const { return hello_; }
  pid_t pid() const { return process_->pid(); }
  // False once the process ended or the session was lost.
  bool Alive();
  const std::optional<WorkerLoss>& loss() const { return loss_; }

  // The callbacks see replies as they come.
  absl::StatusOr<worker::Outcome> OpenProblem(
      const worker::OpenProblem& request,
      const std::function<void(const worker::ListedCandidate&)>& on_listed);
  absl::StatusOr<worker::Outcome> Prepare(
      const worker::Prepare& request,
      const std::function<void(const worker::Prepared&)>& on_prepared);
  absl::StatusOr<worker::Outcome> Measure(
      const worker::Measure& request, const std::function<void(const worker::Sample&)>& on_sample);
  absl::Status CloseProblem();

 private:
  // Returns false for a reply that the request cannot have.
  using ReplyHandler = std::function<bool(const worker::Reply&)>;

  WorkerClient(Options options, std::unique_ptr<WorkerProcess> process)
      : options_(std::move(options)), process_(std::move(process)) {}

  absl::Status Handshake();
  absl::StatusOr<worker::Outcome> Call(const worker::Request& request, absl::Duration budget,
                                       const ReplyHandler& handle);
  absl::StatusOr<worker::Reply> Receive(absl::Time deadline);
  // Ends the process and notes why.
  absl::Status Lose(const std::string& reason);
  absl::Status LosePeer();

  const Options options_;
  std::unique_ptr<WorkerProcess> process_;
  worker::HelloReply hello_;
  std::optional<int> touching_;
  std::optional<WorkerLoss> loss_;
};

}  // namespace convtune

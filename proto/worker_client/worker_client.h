// A WorkerClient is this program's side of the worker protocol.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "convtune/worker/worker.pb.h"
#include "proto/base/cancel_token.h"
#include "proto/base/clock.h"
#include "proto/model/tuning/conditions.h"
#include "proto/worker_client/worker_process.h"

namespace convtune {

// Work of a process since it began, as the kernel counts it: CPU time and
// page faults. It grows while libraries are read and relocated, however slow the
// disk, and stands still in a process that hangs. 0 where it cannot be told.
uint64_t WorkDone(pid_t pid);

// The limits on the time that a process may take to start.
struct StartLimits {
  absl::Duration silence = absl::Seconds(60);  // without a sign of life
  // The limit in all: a process that goes round in circles shows signs of life for ever.
  absl::Duration longest = absl::Minutes(5);
};

// A StartTimeout says until when a process that starts is waited for. It counts from
// the last sign of life, since libraries of gigabytes may come from a cold disk. Not
// thread-safe.
class StartTimeout {
 public:
  StartTimeout(const StartLimits& limits, SteadyTime now)
      : limits_(limits), start_(now), last_sign_(now) {}

  // Empty while it is waited for, else the reason: "it gave no sign of life for 1m". `work_done`:
  // by the process so far; a changed number is a sign of life.
  std::string WhyOver(uint64_t work_done, SteadyTime now);

 private:
  StartLimits limits_;
  SteadyTime start_;
  SteadyTime last_sign_;
  uint64_t work_done_ = 0;
};

// The reason for which a session ended before it was closed.
struct WorkerLoss {
  std::string reason;  // "signal 11 (SIGSEGV)", "hung for 30s", ...
  bool killed_from_outside = false;
  bool hung = false;           // it lived, and did not come to an end in its time
  std::optional<int> suspect;  // index of the candidate that was being touched
};

// One session with one worker. One owner thread; see WorkerProcess.
//
// Errors of the calls: ABORTED if the worker died, hung or answered nonsense
// (then it is gone, and loss() says why); CANCELLED if the token was cancelled
// (then it was killed); DEADLINE_EXCEEDED if SetEnd() ended the wait (then
// the worker goes on, and the session is pending());
// FAILED_PRECONDITION in the worker's words if it refused the request.
class WorkerClient {
 public:
  struct Options {
    std::vector<std::string> worker_argv;
    std::string environment_text = {};  // what the worker must say it is; empty: anything
    // A worker that has sent nothing for this long hangs; a listing, which sends nothing while
    // it is at work, has its own budget besides.
    absl::Duration hang_timeout;
    const CancelToken* cancel = nullptr;
    std::string library_path = {};  // as WorkerProcess::Start takes it
    int errors = STDERR_FILENO;     // likewise
    StartLimits start = {};         // until the handshake is answered
    // What an earlier worker found, if it is known: then this one does not check itself.
    SelfCheck self_check = {};
    uint32_t lost_steps = 0;  // of its self-check, which it leaves out
  };

  // Starts the worker and shakes hands. Errors: UNAVAILABLE with the reason, or CANCELLED.
  // `lost_step` is set to the step of its self-check that the worker did not come back from, of
  // its own fault.
  static absl::StatusOr<std::unique_ptr<WorkerClient>> Start(Options options,
                                                             uint32_t* lost_step = nullptr);

  const worker::v1::HelloReply& hello() const { return hello_; }
  // The outcome of the worker's self-check: the instruments that work.
  const SelfCheck& self_check() const { return self_check_; }
  // True if candidates can be timed, and legacy algorithms searched. Where the clock failed
  // its self-check, that needs the variable CONVTUNE_MEASURE_DESPITE_SELF_CHECK.
  bool measures() const;
  pid_t pid() const { return process_->pid(); }
  // False once the process ended or the session was lost.
  bool Alive() { return !loss_ && !process_->Poll(); }

  const std::optional<WorkerLoss>& loss() const { return loss_; }
  // Waits for the worker end at `end`, or as soon as `gives_way`, which is asked some times a
  // second, returns true. Before the first call they last until the worker replies or hangs.
  void SetEnd(SteadyTime end, std::function<bool()> gives_way = nullptr) {
    end_ = end;
    gives_way_ = std::move(gives_way);
  }
  // A request was left to itself. Only FinishPending() may be called then.
  bool pending() const { return pending_.has_value(); }
  // Waits for its end, and drops its replies. DEADLINE_EXCEEDED as Call.
  absl::Status FinishPending();
  // Returns true at once if the session is cancelled, else false after `pause`.
  bool Pause(absl::Duration pause) const { return options_.cancel->WaitFor(pause); }

  // Sends a request and waits for its end. `on_reply` sees the replies as they come: those
  // that the request can have, but for what the client itself takes (Touching and Outcome).
  using OnReply = std::function<void(const worker::v1::Reply&)>;
  absl::StatusOr<worker::v1::Outcome> Call(
      const worker::v1::Request& request,
      const OnReply& on_reply = [](const worker::v1::Reply&) {});
  absl::Status CloseProblem() {
    worker::v1::Request message;
    message.mutable_close_problem();
    return Call(message).status();
  }

 private:
  WorkerClient(Options options, std::unique_ptr<WorkerProcess> process)
      : options_(std::move(options)), process_(std::move(process)) {}

  // The ends of a wait for the last reply to a request.
  struct Wait {
    SteadyTime over;    // its budget, and hang_timeout behind it
    SteadyTime silent;  // hang_timeout behind the last reply; never for a listing
  };

  absl::Status Handshake(uint32_t* lost_step);
  // Waits while the worker names the steps of its start and of its self-check, and returns the
  // first reply of another kind.
  absl::StatusOr<worker::v1::Reply> AwaitStart(uint32_t* lost_step);
  // `why` is what is said of a worker that has not replied by then.
  absl::StatusOr<worker::v1::Reply> Receive(SteadyTime deadline, const std::string& why);
  // The next reply of a process that may have to load code from a cold disk. Where its time is
  // over, the error is `timeout`'s reason with `doing`, such as "hung: ", in front.
  absl::StatusOr<worker::v1::Reply> ReceiveAtWork(StartTimeout* timeout, const std::string& doing);
  // Reads replies to the last one. A request that is not over by the end is left pending.
  // `handle` returns false for a reply that the request cannot have.
  absl::StatusOr<worker::v1::Outcome> Await(
      Wait wait, const std::function<bool(const worker::v1::Reply&)>& handle);
  // Ends the process and notes why.
  absl::Status Lose(const std::string& reason, bool hung = false);
  absl::Status LosePeer();
  std::string Silence() const;

  const Options options_;
  std::unique_ptr<WorkerProcess> process_;
  worker::v1::HelloReply hello_;
  SelfCheck self_check_;
  SteadyTime end_ = SteadyTime::InfiniteFuture();
  std::function<bool()> gives_way_;
  std::optional<Wait> pending_;  // of the request that is left
  std::optional<int> touching_;
  std::optional<WorkerLoss> loss_;
};

}  // namespace convtune

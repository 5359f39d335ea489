#include "proto/worker_client/worker_client.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/base/framing.h"
#include "proto/base/status_macros.h"
#include "proto/convert/record_codec.h"

namespace convtune {
namespace {

constexpr absl::Duration kStartLook = absl::Milliseconds(100);
constexpr absl::Duration kGivesWayPeriod = absl::Milliseconds(50);

bool CanHave(const worker::v1::Request& request, const worker::v1::Reply& reply) {
  return (request.has_open_problem() && reply.has_listed()) ||
         (request.has_prepare() && reply.has_prepared()) ||
         (request.has_check() && reply.has_checked()) ||
         (request.has_measure() && (reply.has_sample() || reply.has_conditions())) ||
         (request.has_read_conditions() && reply.has_conditions());
}

}  // namespace

uint64_t WorkDone(pid_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/stat"));
  std::string line;
  std::getline(file, line);
  // The name, in parentheses, may hold anything.
  const size_t name_end = line.rfind(')');
  if (name_end == std::string::npos) return 0;
  std::istringstream fields(line.substr(name_end + 1));
  std::string skipped;
  // proc(5): state is field 3; minflt, cminflt, majflt, cmajflt, utime, stime
  // are fields 10 to 15.
  for (int field = 3; field < 10; ++field) fields >> skipped;
  uint64_t work = 0;
  uint64_t number = 0;
  for (int field = 10; field <= 15 && fields >> number; ++field) work += number;
  return work;
}

std::string StartTimeout::WhyOver(uint64_t work_done, SteadyTime now) {
  if (work_done != work_done_) {
    work_done_ = work_done;
    last_sign_ = now;
  }
  const SteadyTime silent = last_sign_ + limits_.silence;
  const SteadyTime longest = start_ + limits_.longest;
  if (now < std::min(silent, longest)) return "";
  return silent <= longest
             ? absl::StrCat("it gave no sign of life for ", absl::FormatDuration(limits_.silence))
             : absl::StrCat("it did not start within ", absl::FormatDuration(limits_.longest));
}

absl::StatusOr<std::unique_ptr<WorkerClient>> WorkerClient::Start(Options options,
                                                                  uint32_t* lost_step) {
  absl::StatusOr<std::unique_ptr<WorkerProcess>> process = WorkerProcess::Start(
      options.worker_argv, options.library_path, /*prints=*/false, options.errors);
  if (!process.ok()) return absl::UnavailableError(process.status().message());
  std::unique_ptr<WorkerClient> client(new WorkerClient(std::move(options), *std::move(process)));
  const absl::Status status = client->Handshake(lost_step);
  if (absl::IsCancelled(status)) return status;
  if (!status.ok()) return absl::UnavailableError(status.message());
  return client;
}

absl::Status WorkerClient::Handshake(uint32_t* lost_step) {
  worker::v1::Request request;
  worker::v1::Hello& hello = *request.mutable_hello();
  hello.set_version(CONVTUNE_VERSION);
  hello.set_lost_steps(options_.lost_steps);
  if (options_.self_check.known()) *hello.mutable_self_check() = ToProto(options_.self_check);
  if (!WriteFrame(process_->fd(), request.SerializeAsString()).ok()) return LosePeer();
  ASSIGN_OR_RETURN(const worker::v1::Reply reply, AwaitStart(lost_step));
  if (reply.has_outcome()) {
    return Lose(absl::StrCat("the worker refuses to serve: ", reply.outcome().message()));
  }
  if (!reply.has_hello() || !reply.last()) return Lose("the worker did not answer the handshake");
  hello_ = reply.hello();
  if (hello_.version() != CONVTUNE_VERSION) {
    return Lose(absl::StrCat("the worker's version is \"", hello_.version(),
                             "\", this program's is \"" CONVTUNE_VERSION "\""));
  }
  if (!options_.environment_text.empty() &&
      hello_.environment_text() != options_.environment_text) {
    return Lose(absl::StrCat("the worker's environment is ", hello_.environment_text(),
                             ", at start it was ", options_.environment_text));
  }
  if (!SelfCheckFromProto(hello_.self_check()).has_value()) {
    return Lose("unreadable self-check: it names an instrument that no self-check has");
  }
  self_check_ = FromProto(hello_.self_check());
  return absl::OkStatus();
}

absl::StatusOr<worker::v1::Reply> WorkerClient::AwaitStart(uint32_t* lost_step) {
  StartTimeout timeout(options_.start, SteadyTime::Now());
  std::string at;     // words for the step that it is at
  uint32_t step = 0;  // of its self-check; 0: it has not begun
  while (true) {
    // Of a self-check one step alone runs a convolution, whose code cuDNN loads.
    const bool loads = step == 0 || step == MaskOf(SelfCheckBit::kCaptures);
    absl::StatusOr<worker::v1::Reply> reply =
        loads ? ReceiveAtWork(&timeout, step == 0 ? "" : "hung: ")
              : Receive(SteadyTime::Now() + options_.hang_timeout, Silence());
    if (absl::IsCancelled(reply.status())) return reply;
    if (!reply.ok()) {
      if (lost_step != nullptr && !loss_->killed_from_outside) *lost_step = step;
      return absl::Status(
          reply.status().code(),
          absl::StrCat(step == 0 ? "the worker does not start" : "in its self-check", at, ": ",
                       reply.status().message()));
    }
    if (reply->has_starting()) {
      at = absl::StrCat(", at \"", reply->starting(), "\"");
    } else if (reply->has_self_checking()) {
      step = reply->self_checking();
      if (!std::has_single_bit(step) || (step & SelfCheckSteps()) == 0) {
        return Lose("unreadable reply: a step that no self-check has");
      }
      at = absl::StrCat(", at ", absl::StrJoin(FailedInstruments(step), ", "));
      timeout = StartTimeout({options_.hang_timeout, options_.start.longest}, SteadyTime::Now());
    } else {
      return reply;
    }
  }
}

bool WorkerClient::measures() const {
  const char* const despite = std::getenv("CONVTUNE_MEASURE_DESPITE_SELF_CHECK");
  return hello_.has_gpu() &&
         (self_check_.works(SelfCheckBit::kClock) || (despite != nullptr && *despite != '\0'));
}

absl::Status WorkerClient::Lose(const std::string& reason, bool hung) {
  process_->Kill();
  loss_ = WorkerLoss{reason, false, hung, touching_};
  return absl::AbortedError(reason);
}

absl::Status WorkerClient::LosePeer() {
  const WorkerExit exit = process_->Wait();
  loss_ = WorkerLoss{exit.description, exit.killed_from_outside, false, touching_};
  return absl::AbortedError(absl::StrCat("the worker died: ", exit.description));
}

std::string WorkerClient::Silence() const {
  return absl::StrCat("hung: no sign of life for ", absl::FormatDuration(options_.hang_timeout));
}

absl::StatusOr<worker::v1::Reply> WorkerClient::ReceiveAtWork(StartTimeout* timeout,
                                                              const std::string& doing) {
  while (!WaitReadable(process_->fd(), *options_.cancel, SteadyTime::Now() + kStartLook)) {
    if (options_.cancel->cancelled()) break;
    const std::string why = timeout->WhyOver(WorkDone(process_->pid()), SteadyTime::Now());
    if (!why.empty()) return Lose(absl::StrCat(doing, why), /*hung=*/true);
  }
  return Receive(SteadyTime::Now() + options_.hang_timeout, Silence());
}

absl::StatusOr<worker::v1::Reply> WorkerClient::Receive(SteadyTime deadline,
                                                        const std::string& why) {
  if (!WaitReadable(process_->fd(), *options_.cancel, deadline)) {
    if (options_.cancel->cancelled()) {
      loss_ = WorkerLoss{"cancelled", false, false, {}};
      process_->Kill();
      return absl::CancelledError("cancelled");
    }
    return Lose(why, /*hung=*/true);
  }
  absl::StatusOr<std::string> frame = ReadFrame(process_->fd(), deadline);
  if (absl::IsOutOfRange(frame.status())) return LosePeer();
  if (absl::IsDeadlineExceeded(frame.status())) return Lose("hung in the middle of a reply", true);
  if (!frame.ok()) {
    // A process that dies while it writes leaves half a message behind.
    if (process_->Poll()) return LosePeer();
    return Lose(absl::StrCat("unreadable reply: ", frame.status().message()));
  }
  worker::v1::Reply reply;
  if (!reply.ParseFromString(*frame)) return Lose("unreadable reply: not a message");
  return reply;
}

absl::StatusOr<worker::v1::Outcome> WorkerClient::Call(const worker::v1::Request& request,
                                                       const OnReply& on_reply) {
  if (loss_) return absl::AbortedError(loss_->reason);
  touching_.reset();
  const SteadyTime now = SteadyTime::Now();
  // A listing names no candidates, and one call of cuDNN may be most of it.
  Wait wait{
      now + absl::Milliseconds(request.time_budget_ms()) + options_.hang_timeout,
      request.has_open_problem() ? SteadyTime::InfiniteFuture() : now + options_.hang_timeout};
  if (!WriteFrame(process_->fd(), request.SerializeAsString()).ok()) return LosePeer();
  return Await(wait, [&](const worker::v1::Reply& reply) {
    if (!CanHave(request, reply)) return false;
    on_reply(reply);
    return true;
  });
}

absl::StatusOr<worker::v1::Outcome> WorkerClient::Await(
    Wait wait, const std::function<bool(const worker::v1::Reply&)>& handle) {
  while (true) {
    const SteadyTime hang = std::min(wait.over, wait.silent);
    SteadyTime end = end_;
    const SteadyTime until = gives_way_ ? std::min(end, SteadyTime::Now() + kGivesWayPeriod) : end;
    const bool ready = until < hang ? WaitReadable(process_->fd(), *options_.cancel, until) : true;
    if (gives_way_ && gives_way_()) end = std::min(end, SteadyTime::Now());
    if (SteadyTime::Now() >= end && end < hang && !options_.cancel->cancelled()) {
      pending_ = wait;
      return absl::DeadlineExceededError("the budget ended while the worker was at work");
    }
    if (!ready && !options_.cancel->cancelled()) continue;
    ASSIGN_OR_RETURN(
        worker::v1::Reply reply,
        Receive(hang, wait.silent < wait.over
                          ? Silence()
                          : absl::StrCat("hung: no reply within the request's own budget and ",
                                         absl::FormatDuration(options_.hang_timeout))));
    if (SteadyTime::Now() > wait.over) return Lose("hung: replies without end", true);
    if (wait.silent < SteadyTime::InfiniteFuture()) {
      wait.silent = SteadyTime::Now() + options_.hang_timeout;
    }
    if (reply.has_touching()) {
      touching_ = reply.index();
      continue;
    }
    if (reply.has_prepared()) touching_.reset();
    if (reply.has_outcome()) {
      if (!reply.last()) return Lose("unreadable reply: an outcome that is not the last");
      touching_.reset();
      if (reply.outcome().ok()) return reply.outcome();
      const std::string& why = reply.outcome().message();
      return absl::FailedPreconditionError(why.empty() ? "the worker refuses without a reason"
                                                       : why);
    }
    if (reply.last() || !handle(reply)) {
      return Lose("unreadable reply: not one that the request can have");
    }
  }
}

absl::Status WorkerClient::FinishPending() {
  if (loss_) return absl::AbortedError(loss_->reason);
  if (!pending_) return absl::OkStatus();
  const Wait wait = *std::exchange(pending_, std::nullopt);
  const absl::StatusOr<worker::v1::Outcome> outcome =
      Await(wait, [](const worker::v1::Reply&) { return true; });
  // Nobody waits for the request's outcome any more.
  return absl::IsFailedPrecondition(outcome.status()) ? absl::OkStatus() : outcome.status();
}

}  // namespace convtune

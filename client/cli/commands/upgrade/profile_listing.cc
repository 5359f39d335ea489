#include "client/cli/commands/upgrade/upgrade_changes.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <iterator>
#include <memory>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "convtune/worker/worker.pb.h"
#include "proto/base/child_program.h"
#include "proto/base/clock.h"
#include "proto/base/framing.h"
#include "proto/base/status_macros.h"
#include "proto/base/strings.h"
#include "proto/base/unique_fd.h"
#include "proto/convert/record_codec.h"

namespace convtune::cli::commands::upgrade {
namespace {

constexpr int kWorkerFd = 3;  // the last of those that it is started with
// Its libraries have a gigabyte, and may lie on a cold disk.
constexpr absl::Duration kStartTimeout = absl::Minutes(3);
// One reply takes milliseconds, seconds where an engine is compiled.
constexpr absl::Duration kReplyTimeout = absl::Minutes(1);

// The driver stub lacks this function on purpose (driver_stub.c), and
// cuDNN says so once for each problem.
constexpr char kStubWords[] = "Could not load symbol cuDriverGetVersion";

// Passes on to standard error what a worker says, line by line, until its end.
void PassOn(int fd) {
  FILE* const lines = fdopen(fcntl(fd, F_DUPFD_CLOEXEC, 0), "r");
  if (lines == nullptr) return;
  char* line = nullptr;
  size_t room = 0;
  while (getline(&line, &room, lines) > 0) {
    if (strstr(line, kStubWords) == nullptr) fputs(line, stderr);
  }
  free(line);
  fclose(lines);
}

// A session with one worker, from this end. The worker dies with the thread that
// started it.
class WorkerSession {
 public:
  static absl::StatusOr<std::unique_ptr<WorkerSession>> Start(const std::string& worker,
                                                              const CudnnFolder& cudnn,
                                                              const std::string& profile_file) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
      return absl::ErrnoToStatus(errno, "socketpair");
    }
    UniqueFd ours(ends[0]);
    UniqueFd theirs(ends[1]);
    int errors[2];
    if (pipe2(errors, O_CLOEXEC) != 0) return absl::ErrnoToStatus(errno, "pipe");
    UniqueFd said(errors[0]);
    UniqueFd saying(errors[1]);
    Variables variables;
    if (!cudnn.library_path.empty()) variables.emplace_back("LD_LIBRARY_PATH", cudnn.library_path);
    ASSIGN_OR_RETURN(const pid_t pid,
                     Spawn({worker, "--profile", profile_file, "--fd", absl::StrCat(kWorkerFd)},
                           variables, {saying.get(), saying.get(), theirs.get()}));
    // With the worker's ends in this process too, its end would never be seen.
    theirs = UniqueFd();
    saying = UniqueFd();
    auto session =
        std::unique_ptr<WorkerSession>(new WorkerSession(pid, std::move(ours), std::move(said)));
    worker::v1::Request hello;
    hello.mutable_hello()->set_version(CONVTUNE_VERSION);
    std::string text;
    RETURN_IF_ERROR(
        session
            ->Ask(hello, kStartTimeout,
                  [&](const worker::v1::Reply& reply) { text = reply.hello().environment_text(); })
            .status());
    ASSIGN_OR_RETURN(session->environment_, Environment::Parse(text));
    return session;
  }

  ~WorkerSession() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    words_.join();
  }
  WorkerSession(const WorkerSession&) = delete;
  WorkerSession& operator=(const WorkerSession&) = delete;

  const Environment& environment() const { return environment_; }

  // Sends the request and calls `see` with each reply. FAILED_PRECONDITION in the
  // worker's words if it refused; ABORTED if it died or hung.
  absl::StatusOr<worker::v1::Outcome> Ask(
      const worker::v1::Request& request, absl::Duration timeout,
      const std::function<void(const worker::v1::Reply&)>& see) {
    if (!WriteFrame(socket_.get(), request.SerializeAsString()).ok()) return Lost();
    while (true) {
      const absl::StatusOr<std::string> frame =
          ReadFrame(socket_.get(), SteadyTime::Now() + timeout);
      worker::v1::Reply reply;
      if (absl::IsDeadlineExceeded(frame.status())) {
        return absl::AbortedError(
            absl::StrCat("the worker said nothing for ", absl::FormatDuration(timeout)));
      }
      if (!frame.ok() || !reply.ParseFromString(*frame)) return Lost();
      if (!reply.has_outcome()) see(reply);
      if (!reply.last()) continue;
      if (reply.has_outcome() && !reply.outcome().ok()) {
        return absl::FailedPreconditionError(reply.outcome().message());
      }
      return reply.outcome();
    }
  }

 private:
  WorkerSession(pid_t pid, UniqueFd socket, UniqueFd said)
      : pid_(pid),
        socket_(std::move(socket)),
        words_([fd = std::move(said)] { PassOn(fd.get()); }) {}

  // Says how it ended.
  absl::Status Lost() {
    int status = 0;
    waitpid(std::exchange(pid_, -1), &status, 0);
    return absl::AbortedError(
        WIFSIGNALED(status) ? absl::StrCat("the worker was ended by signal ", WTERMSIG(status),
                                           " (", sigabbrev_np(WTERMSIG(status)), ")")
                            : absl::StrCat("the worker ended with exit code ", WEXITSTATUS(status),
                                           " (any reason that it gave stands above)"));
  }

  pid_t pid_;
  const UniqueFd socket_;
  std::thread words_;  // ends with the worker
  Environment environment_;
};

absl::StatusOr<ListedProblem> AskFor(const AskedProblem& asked, Build build,
                                     WorkerSession* session) {
  ListedProblem result;
  result.tuning.set_problem_text(asked.problem.ToText());
  worker::v1::Request open;
  open.mutable_open_problem()->set_problem_text(asked.problem.ToText());
  open.mutable_open_problem()->set_listing(worker::v1::LISTING_HEURISTICS);
  open.mutable_open_problem()->set_graph_api(true);
  if (!asked.winner.empty()) open.mutable_open_problem()->add_candidate_texts(asked.winner);
  std::optional<int> winner;
  absl::Status readable;
  const auto listed = session->Ask(open, kReplyTimeout, [&](const worker::v1::Reply& reply) {
    Candidate candidate;
    readable.Update(Read(reply.listed(), &candidate));
    if (ToText(candidate.id) == asked.winner) winner = reply.index();
    // What nobody but us has named is no candidate of cuDNN's.
    if (candidate.heuristic_rank < 0) return;
    Fill(candidate, asked.problem.operation(), result.tuning.add_candidates());
  });
  if (absl::IsAborted(listed.status())) return listed.status();
  if (!readable.ok()) {
    result.error = Concat("the worker lists a candidate that cannot be read: ", readable.message());
    result.tuning.clear_candidates();
    return result;
  }
  if (!listed.ok()) {
    result.refusal = std::string(listed.status().message());
    result.tuning.clear_candidates();
    if (!asked.winner.empty()) result.winner_builds = false;
    return result;
  }
  // Those that the heuristics list come first: their indexes are places in the tuning.
  worker::v1::Request prepare;
  prepare.mutable_prepare();
  for (int i = 0; i < result.tuning.candidates_size(); ++i) prepare.add_indexes(i);
  if (build == Build::kFirst) prepare.mutable_prepare()->set_stop_after(1);
  RETURN_IF_ERROR(
      session
          ->Ask(prepare, kReplyTimeout,
                [&](const worker::v1::Reply& reply) {
                  if (!reply.has_prepared()) return;
                  v1::Candidate& candidate = *result.tuning.mutable_candidates(reply.index());
                  candidate.set_status(reply.prepared().ok() ? v1::CANDIDATE_STATUS_FINALIZED
                                                             : v1::CANDIDATE_STATUS_FAILED);
                  candidate.set_workspace_bytes(reply.prepared().workspace_bytes());
                })
          .status());
  if (winner) {
    worker::v1::Request prepare_winner;
    prepare_winner.mutable_prepare();
    prepare_winner.add_indexes(*winner);
    result.winner_builds = false;
    RETURN_IF_ERROR(session
                        ->Ask(prepare_winner, kReplyTimeout,
                              [&](const worker::v1::Reply& reply) {
                                if (reply.has_prepared())
                                  result.winner_builds = reply.prepared().ok();
                              })
                        .status());
  }
  return result;
}

// The loader takes another cuDNN where it cannot take the one of the folder.
absl::Status CheckVersion(const CudnnFolder& cudnn, const Environment& environment) {
  const CudnnVersion& loaded = environment.cudnn;
  const int numbers[] = {loaded.major, loaded.minor, loaded.patch};
  const size_t known = std::min(cudnn.version.size(), std::size(numbers));
  if (std::equal(numbers, numbers + known, cudnn.version.begin())) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "--cache: the worker took cuDNN ", loaded.ToText(), " in place of ",
      absl::StrJoin(cudnn.version, "."), " in ", cudnn.folder, "; remove that folder"));
}

}  // namespace

absl::StatusOr<ProfileListing> ListOnProfile(const std::string& worker, const CudnnFolder& cudnn,
                                             const std::string& profile_file,
                                             const std::vector<AskedProblem>& problems,
                                             Build build) {
  ProfileListing listing;
  std::unique_ptr<WorkerSession> session;
  for (const AskedProblem& asked : problems) {
    if (session == nullptr) {
      auto started = WorkerSession::Start(worker, cudnn, profile_file);
      if (!started.ok()) {
        return absl::FailedPreconditionError(absl::StrCat(
            cudnn.folder.empty() ? "the worker's cuDNN" : absl::StrCat("cuDNN in ", cudnn.folder),
            ": ", started.status().message()));
      }
      session = *std::move(started);
      listing.environment = session->environment();
      RETURN_IF_ERROR(CheckVersion(cudnn, listing.environment));
    }
    absl::StatusOr<ListedProblem> listed = AskFor(asked, build, session.get());
    if (listed.ok()) {
      listing.problems.push_back(*std::move(listed));
      continue;
    }
    listing.problems.emplace_back().error = std::string(listed.status().message());
    session = nullptr;
  }
  return listing;
}

}  // namespace convtune::cli::commands::upgrade

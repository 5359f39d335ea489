#include "client/cli/commands/upgrade/upgrade_changes.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <memory>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "convtune/worker/worker.pb.h"
#include "proto/base/cancel_token.h"
#include "proto/base/status_macros.h"
#include "proto/base/strings.h"
#include "proto/base/unique_fd.h"
#include "proto/convert/record_codec.h"
#include "proto/model/text.h"
#include "proto/worker_client/worker_client.h"

namespace convtune::cli::commands::upgrade {
namespace {

// Listing and building a plan take milliseconds each, but seconds where an engine is compiled.
constexpr absl::Duration kReplyTimeout = absl::Minutes(1);
constexpr int64_t kListingBudgetMs = 300'000;
// For building the plans of a problem, of which each may be compiled.
constexpr int64_t kBuildBudgetMs = 1'800'000;

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

absl::StatusOr<ListedProblem> AskFor(const AskedProblem& asked, Build build, WorkerClient* client) {
  ListedProblem result;
  result.tuning.set_problem_text(asked.problem.ToText());
  worker::v1::Request open;
  open.set_time_budget_ms(kListingBudgetMs);
  open.mutable_open_problem()->set_problem_text(asked.problem.ToText());
  open.mutable_open_problem()->set_listing(worker::v1::LISTING_HEURISTICS);
  open.mutable_open_problem()->set_graph_api(true);
  if (!asked.winner.empty()) open.mutable_open_problem()->add_candidate_texts(asked.winner);
  std::optional<int> winner;
  absl::Status readable;
  const auto listed = client->Call(open, [&](const worker::v1::Reply& reply) {
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
  prepare.set_time_budget_ms(kBuildBudgetMs);
  prepare.mutable_prepare();
  for (int i = 0; i < result.tuning.candidates_size(); ++i) prepare.add_indexes(i);
  if (build == Build::kFirst) prepare.mutable_prepare()->set_stop_after(1);
  int tried = 0;
  bool built = false;
  const auto take = [&](const worker::v1::Reply& reply) {
    ++tried;
    built |= reply.prepared().ok();
    v1::Candidate& candidate = *result.tuning.mutable_candidates(reply.index());
    candidate.set_status(reply.prepared().ok() ? v1::CANDIDATE_STATUS_FINALIZED
                                               : v1::CANDIDATE_STATUS_FAILED);
    candidate.set_workspace_bytes(reply.prepared().workspace_bytes());
  };
  RETURN_IF_ERROR(client->Call(prepare, take).status());
  if (tried < prepare.indexes_size() && !(build == Build::kFirst && built)) {
    result.error =
        Concat("of ", prepare.indexes_size(), " candidates ", tried, " were tried within ",
               absl::FormatDuration(absl::Milliseconds(kBuildBudgetMs)));
    return result;
  }
  if (winner) {
    prepare.clear_indexes();
    prepare.add_indexes(*winner);
    result.winner_builds = false;
    const auto see_whether = [&result](const worker::v1::Reply& reply) {
      result.winner_builds = reply.prepared().ok();
    };
    RETURN_IF_ERROR(client->Call(prepare, see_whether).status());
  }
  return result;
}

// The loader takes another cuDNN where it cannot take the one of the folder.
absl::Status CheckVersion(const CudnnToLoad& cudnn, const Environment& environment) {
  const CudnnVersion& loaded = environment.cudnn;
  const std::vector<int> asked = VersionNumbers(cudnn.version);
  const int numbers[] = {loaded.major, loaded.minor, loaded.patch};
  const size_t known = std::min(asked.size(), std::size(numbers));
  if (std::equal(numbers, numbers + known, asked.begin())) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("--cache: the worker took cuDNN ",
                                                    loaded.ToText(), " in place of ", cudnn.version,
                                                    " in ", cudnn.folder, "; remove that folder"));
}

}  // namespace

absl::StatusOr<ProfileListing> ListOnProfile(const std::string& worker, const CudnnToLoad& cudnn,
                                             const std::string& profile_file,
                                             const std::vector<AskedProblem>& problems,
                                             Build build) {
  ProfileListing listing;
  ASSIGN_OR_RETURN(const std::unique_ptr<CancelToken> never, CancelToken::Create());
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return absl::ErrnoToStatus(errno, "pipe");
  // It ends once no worker and no descriptor of ours can write any more.
  const std::jthread words([said = UniqueFd(ends[0])] { PassOn(said.get()); });
  const UniqueFd saying(ends[1]);
  std::unique_ptr<WorkerClient> client;
  for (const AskedProblem& asked : problems) {
    if (client == nullptr) {
      WorkerClient::Options options;
      options.worker_argv = {worker, "--profile", profile_file};
      options.hang_timeout = kReplyTimeout;
      options.cancel = never.get();
      options.library_path = cudnn.library_path;
      options.errors = saying.get();
      auto started = WorkerClient::Start(std::move(options));
      if (!started.ok()) {
        return absl::FailedPreconditionError(absl::StrCat(
            cudnn.folder.empty() ? "the worker's cuDNN" : absl::StrCat("cuDNN in ", cudnn.folder),
            ": ", started.status().message()));
      }
      client = *std::move(started);
      ASSIGN_OR_RETURN(listing.environment, Environment::Parse(client->hello().environment_text()));
      RETURN_IF_ERROR(CheckVersion(cudnn, listing.environment));
    }
    absl::StatusOr<ListedProblem> listed = AskFor(asked, build, client.get());
    if (listed.ok()) {
      listing.problems.push_back(*std::move(listed));
      continue;
    }
    listing.problems.emplace_back().error = std::string(listed.status().message());
    client = nullptr;
  }
  return listing;
}

}  // namespace convtune::cli::commands::upgrade

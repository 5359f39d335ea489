#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <set>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/commands/upgrade/cudnn_cache.h"
#include "client/cli/commands/upgrade/upgrade_changes.h"
#include "client/cli/input/problem_args.h"
#include "client/cli/output/atomic_file.h"
#include "client/cli/output/units.h"
#include "proto/base/default_paths.h"
#include "proto/base/errors.h"
#include "proto/base/status_macros.h"

namespace convtune::cli::commands::upgrade {
namespace {

constexpr int kTuningsPerPage = 1000;

// One more kind for Has(), which --fail-on cannot name: nothing is known of the change.
constexpr char kUnknown[] = "unknown";

// True if `change` has what --fail-on names so.
bool Has(const UpgradeChange& change, const std::string& kind) {
  if (kind == "changed") return change.choice_changed();
  if (kind == "workspace") return change.workspace_grew();
  if (kind == "last-resort") return change.last_resort;
  if (kind == "errata") return change.has_erratum();
  if (kind == "notes") return change.notes_changed();
  if (kind == kUnknown) return change.unknown();
  return change.lost();
}

class UpgradeCheckCommand final : public app::Command {
 public:
  void Register(CLI::App& root) override {
    CLI::App* app = AddVerb(root, "upgrade-check",
                            "what another cuDNN changes, without a GPU: first choices, workspace, "
                            "notes, stored winners",
                            ColumnsOfUpgrade());
    problems_.RegisterFiles(*app);
    app->add_option(
           "--from", from_,
           "cuDNN of today: a version such as 9.19, that of a package such as torch==2.13, or a "
           "folder, also a venv's (default: the worker's; without FILE that of the tunings)")
        ->type_name("CUDNN");
    app->add_option("--to", to_, "cuDNN of tomorrow: a version, a package, or a folder")
        ->type_name("CUDNN")
        ->required();
    app->add_option("--profile", profiles_, "GPUs: profiles' names or files, with commas between")
        ->type_name("PROFILE")
        ->delimiter(',')
        ->allow_extra_args(false);  // a FILE may stand behind it
    app->add_flag("--all", all_, "show the problems that do not change too");
    app->add_option(
           "--fail-on", fail_on_,
           "end with 1 if there is such a change: another first choice, more workspace, "
           "other notes, an engine of last resort alone or one that is known to be wrong, a "
           "stored winner or every choice lost")
        ->delimiter(',')
        ->allow_extra_args(false)
        ->check(CLI::IsMember({"changed", "workspace", "notes", "last-resort", "errata", "lost"}));
    app->add_option("--tune-list", tune_list_,
                    "write what to tune again into this file, for `convtune warm`")
        ->type_name("FILE");
    app->add_option("--html", html_, "write the changes as a page that needs nothing else")
        ->type_name("FILE");
    app->add_option("--cache", cache_,
                    "folder that keeps versions of PyPI (default: ~/.cache/convtune/cudnn)")
        ->type_name("FOLDER");
    app->add_option("--index-url", index_, "index of packages in place of pip's own")
        ->type_name("URL");
    app->add_option("--worker", worker_, "convtune-worker (default: the one beside this program)")
        ->type_name("FILE");
  }

  absl::StatusOr<app::ExitCode> Run(app::Context& context) override {
    app::ExitCode code = app::ExitCode::kDone;
    if (worker_.empty()) worker_ = DefaultWorkerPath();
    if (!std::filesystem::exists(worker_)) {
      return FailedPrecondition("--worker: there is no ", worker_, ", which asks cuDNN");
    }
    std::vector<AskedProblem> problems;
    v1::Environment stored;  // of the database's tunings; empty: they are not asked for
    if (problems_.is_empty()) {
      RETURN_IF_ERROR(AskDaemon(context, &problems, &stored));
    } else {
      ASSIGN_OR_RETURN(const input::ProblemBatch batch, problems_.Read(context));
      code = batch.code;
      for (const ProblemRow& row : Distinct(batch.rows)) {
        problems.push_back({row.problem, row.count, ""});
      }
      if (problems.empty()) return code;  // why has been said
    }
    if (profiles_.empty() && !stored.gpu_model().empty() &&
        FindProfile(Slug(stored.gpu_model())).ok()) {
      profiles_.push_back(Slug(stored.gpu_model()));
    }
    if (profiles_.empty()) {
      return absl::InvalidArgumentError(
          "--profile: must be given: nvidia-h200, another of deploy/profiles, or a file of your "
          "own");
    }
    ASSIGN_OR_RETURN(const auto profiles, FindProfiles(profiles_));
    CudnnCache cache(
        {cache_, index_, worker_, [&context](const std::string& words) { context.Say(words); }});
    // First the one that may not be there yet: a mistake costs no download of the other.
    ASSIGN_OR_RETURN(const CudnnToLoad to, cache.Find("--to", to_));
    ASSIGN_OR_RETURN(const CudnnToLoad from,
                     from_.empty() && !stored.cudnn_version().empty()
                         ? CudnnOf(stored.cudnn_version(), profiles[0].second, problems[0], &cache)
                         : cache.Find("--from", from_));
    std::vector<ProfileChanges> results;
    for (const auto& [name, file] : profiles) {
      ASSIGN_OR_RETURN(ProfileChanges changes, Compare(file, from, to, problems));
      changes.profile = name;
      if (!stored.cudnn_version().empty() && changes.from != stored.cudnn_version()) {
        return InvalidArgument("--from: must be the cuDNN of the database's ",
                               output::Counted(static_cast<int64_t>(problems.size()), "tuning"),
                               ", ", stored.cudnn_version(), ", is ", changes.from,
                               "; without --from it is");
      }
      results.push_back(std::move(changes));
    }
    PrintUpgrade(context, results, all_);
    if (!tune_list_.empty()) {
      RETURN_IF_ERROR(output::AtomicFile::WriteWhole(tune_list_, "--tune-list", TuneList(results)));
    }
    if (!html_.empty()) {
      RETURN_IF_ERROR(output::AtomicFile::WriteWhole(html_, "--html", UpgradeHtml(results)));
    }
    const std::vector<std::string> failures = Failures(results);
    if (!failures.empty()) {
      code = app::Worse(code, app::ExitCode::kFailed);
      context.Say("failed: ", absl::StrJoin(failures, ", "));
    }
    return code;
  }

 private:
  // "workspace (1)": what --fail-on names and is there, and how often.
  std::vector<std::string> Failures(const std::vector<ProfileChanges>& results) const {
    std::vector<std::string> kinds(fail_on_.begin(), fail_on_.end());
    kinds.emplace_back(kUnknown);  // what is not known is no success either
    std::vector<std::string> failures;
    for (const std::string& kind : kinds) {
      int64_t count = 0;
      for (const ProfileChanges& profile : results) {
        count += std::count_if(profile.changes.begin(), profile.changes.end(),
                               [&](const UpgradeChange& change) { return Has(change, kind); });
      }
      if (count > 0) failures.push_back(absl::StrCat(kind, " (", count, ")"));
    }
    return failures;
  }

  // Returns the cuDNN of that version: the worker's own where it has it, else the cache's.
  absl::StatusOr<CudnnToLoad> CudnnOf(const std::string& version, const std::string& profile_file,
                                      const AskedProblem& problem, CudnnCache* cache) const {
    ASSIGN_OR_RETURN(const ProfileListing own,
                     ListOnProfile(worker_, CudnnToLoad(), profile_file, {problem}));
    if (own.environment.cudnn.ToText() == version) return CudnnToLoad();
    return cache->Find("--from", version);
  }

  // The tunings of one environment of the database, with their winners.
  static absl::Status AskDaemon(app::Context& context, std::vector<AskedProblem>* problems,
                                v1::Environment* stored) {
    auto request = context.NewRequest<v1::ListTuningsRequest>();
    request.set_page_size(kTuningsPerPage);
    std::set<std::string> environments;
    int legacy = 0;
    ASSIGN_OR_RETURN(const auto list, context.CallPages<v1::ListTuningsResponse>(request));
    for (const v1::Tuning& tuning : list.tunings()) {
      ASSIGN_OR_RETURN(const ConvProblem problem, ConvProblem::Parse(tuning.problem_text()));
      environments.insert(tuning.environment().text());
      *stored = tuning.environment();
      const bool graph = absl::StartsWith(tuning.winner(), "graph:");
      if (!graph && !tuning.winner().empty()) ++legacy;
      problems->push_back({problem, 1, graph ? tuning.winner() : ""});
    }
    if (problems->empty()) {
      return absl::InvalidArgumentError("FILE: must be given, since the database has no tunings");
    }
    if (environments.size() > 1) {
      return InvalidArgument("--environment: must be one of ", absl::StrJoin(environments, "; "),
                             ": the database has tunings of each");
    }
    if (legacy > 0) {
      context.Say(legacy,
                  " stored winners are of the legacy API: whether they are "
                  "still there takes a GPU");
    }
    return absl::OkStatus();
  }

  // Asks both versions at once: each worker keeps one core busy.
  absl::StatusOr<ProfileChanges> Compare(const std::string& profile_file, const CudnnToLoad& from,
                                         const CudnnToLoad& to,
                                         const std::vector<AskedProblem>& problems) const {
    absl::StatusOr<ProfileListing> before = absl::UnknownError("not asked");
    std::thread other([&] { before = ListOnProfile(worker_, from, profile_file, problems); });
    const absl::StatusOr<ProfileListing> after = ListOnProfile(worker_, to, profile_file, problems);
    other.join();
    RETURN_IF_ERROR(before.status());
    RETURN_IF_ERROR(after.status());
    ProfileChanges result;
    result.from = before->environment.cudnn.ToText();
    result.to = after->environment.cudnn.ToText();
    for (size_t i = 0; i < problems.size(); ++i) {
      result.changes.push_back(CompareListings(problems[i], before->problems[i], after->problems[i],
                                               after->environment.ToText()));
    }
    return result;
  }

  input::ProblemArgs problems_;
  std::string from_, to_, tune_list_, html_, cache_, index_, worker_;
  std::vector<std::string> profiles_, fail_on_;
  bool all_ = false;
};

}  // namespace

std::unique_ptr<app::Command> NewUpgradeCheckCommand() {
  return std::make_unique<UpgradeCheckCommand>();
}

}  // namespace convtune::cli::commands::upgrade

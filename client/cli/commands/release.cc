// The verbs release and wanted.
#include <signal.h>
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <ostream>
#include <string>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/time/time.h"
#include "client/cli/app/context.h"
#include "client/cli/calls/answers.h"
#include "client/cli/commands/commands.h"
#include "client/cli/input/options.h"
#include "client/cli/input/problem_args.h"
#include "client/cli/output/atomic_file.h"
#include "client/cli/output/fields.h"
#include "client/cli/output/units.h"
#include "convtune/v1/release_service.pb.h"
#include "db/snapshot/snapshot_file.h"
#include "proto/base/clock.h"
#include "proto/base/status_macros.h"
#include "proto/model/environment.h"

namespace convtune::cli::commands {
namespace {

constexpr absl::Duration kFetchRetry = absl::Milliseconds(500);

// Returns after `time`, or true at once when one of `stops` comes, which are blocked.
bool StopsWithin(const sigset_t& stops, absl::Duration time) {
  const timespec most = absl::ToTimespec(std::max(time, absl::ZeroDuration()));
  return sigtimedwait(&stops, nullptr, &most) > 0;
}

bool MayComeYet(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsNotFound(status) || absl::IsAborted(status);
}

// Puts the daemon's snapshot in place where it is another one than `*version` (0: none is known),
// and says so. While it comes, no more than a piece of it is in memory.
absl::Status Fetch(app::Context& context, const std::string& folder, uint64_t* version) {
  const std::string path = absl::StrCat(folder, "/", snapshot::kSnapshotFile);
  std::unique_ptr<output::AtomicFile> file;
  int64_t size = 0;
  v1::ReadSnapshotRequest request;
  request.set_version(*version);
  while (true) {
    request.set_offset(size);
    ASSIGN_OR_RETURN(const v1::ReadSnapshotResponse piece,
                     context.Call<v1::ReadSnapshotResponse>(request));
    if (file == nullptr) {
      if (piece.chunk().empty()) return absl::OkStatus();  // it is that of *version
      std::error_code made;
      std::filesystem::create_directories(folder, made);
      ASSIGN_OR_RETURN(file, output::AtomicFile::Create(path, "FOLDER"));
    }
    RETURN_IF_ERROR(file->Write(piece.chunk()));
    size += static_cast<int64_t>(piece.chunk().size());
    request.set_version(piece.version());
    if (piece.chunk().empty() || size >= piece.size_bytes()) break;
  }
  // What a program would refuse must not replace what it has.
  snapshot::SnapshotFile read;
  const char* reason = "";
  if (!read.Read(file->temporary_path().c_str(), &reason)) {
    return absl::DataLossError(absl::StrCat("the snapshot that came is not sound: ", reason));
  }
  const snapshot::SnapshotView& view = read.view();
  RETURN_IF_ERROR(file->Commit());
  *version = request.version();
  uint64_t choices = 0;
  for (uint32_t i = 0; i < view.section_count(); ++i) choices += view.section(i).entry_count;
  context.PrintJson({{"file", path},
                     {"release", static_cast<int64_t>(view.header().release)},
                     {"choices", static_cast<int64_t>(choices)},
                     {"bytes", size}});
  context.io().out.flush();  // a reader of --watch waits for the line
  context.Say("wrote release ", view.header().release, " to ", path, ": ",
              output::Counted(static_cast<int64_t>(choices), "choice"), ", ",
              output::FormatBytes(size));
  return absl::OkStatus();
}

// `folder` is made if need be. Tries until it has the snapshot, for at most `wait`, while the
// daemon cannot be reached or has published nothing. With `watch` above 0 looks again at that
// interval until SIGTERM or SIGINT, through errors, which it says.
app::ExitCode FetchRelease(app::Context& context, const std::string& folder, absl::Duration wait,
                           absl::Duration watch) {
  uint64_t version = 0;
  const bool watching = watch > absl::ZeroDuration();
  sigset_t stops;
  sigemptyset(&stops);
  if (watching) {
    sigaddset(&stops, SIGTERM);
    sigaddset(&stops, SIGINT);
    sigprocmask(SIG_BLOCK, &stops, nullptr);  // before the connection has threads
  }
  const SteadyTime end = SteadyTime::Now() + wait;
  while (true) {
    const absl::Status status = Fetch(context, folder, &version);
    const absl::Duration left = end - SteadyTime::Now();
    const bool waits = MayComeYet(status) && left > absl::ZeroDuration();
    const app::ExitCode code = status.ok() || waits ? app::ExitCode::kDone : context.Fail(status);
    if (!waits && !watching) return code;
    const absl::Duration pause = waits ? std::min(kFetchRetry, left) : watch;
    if (StopsWithin(stops, pause)) return app::ExitCode::kDone;
  }
}

std::string ShareWord(int permille) { return absl::StrCat(permille / 10.0, "%"); }

std::string StateName(const v1::Release& release, int64_t promoted) {
  if (release.state() == v1::RELEASE_STATE_CANARY) return "canary";
  if (release.state() == v1::RELEASE_STATE_ROLLED_BACK) return "rolled_back";
  return release.number() == promoted ? "promoted" : "replaced";
}

std::string ChoiceWord(const v1::Portfolio& portfolio) {
  std::vector<std::string> texts;
  for (const v1::ServedChoice& choice : portfolio.choices()) {
    texts.push_back(choice.candidate().text());
  }
  return absl::StrJoin(texts, ";");
}

std::string FirstWord(const v1::Portfolio& portfolio) {
  if (portfolio.choices().empty()) return "-";
  const int more = portfolio.choices_size() - 1;
  return absl::StrCat(portfolio.choices(0).candidate().text(),
                      more > 0 ? absl::StrCat(" +", more) : "");
}

output::Fields ReleaseFields(const v1::Release& release, int64_t promoted) {
  const std::string state = StateName(release, promoted);
  const output::Color color = state == "promoted" ? output::Color::kGreen
                              : state == "canary" ? output::Color::kYellow
                                                  : output::Color::kNone;
  const std::string share = state == "canary" ? " " + ShareWord(release.canary_permille()) : "";
  std::string reason = release.reason();
  if (release.restores() != 0) {
    absl::StrAppend(&reason, " (the choices of ", release.restores(), ")");
  }
  if (release.has_end_time()) {
    absl::StrAppend(&reason, "; ", release.end_author(), ": ", release.end_reason());
  }
  return {{"release", "RELEASE", release.number()},
          {"state", "STATE",
           output::Value(state).Shown(absl::StrReplaceAll(state, {{"_", " "}}) + share).In(color)},
          {"canary_permille", "", release.canary_permille()},
          {"restores", "", release.restores() != 0 ? absl::StrCat(release.restores()) : ""},
          {"author", "AUTHOR", release.author()},
          {"reason", "", release.reason()},
          {"created", "CREATED", output::FormatTimestamp(release.create_time())},
          {"end_author", "", release.end_author()},
          {"end_reason", "", release.end_reason()},
          {"ended", "", release.has_end_time() ? output::FormatTimestamp(release.end_time()) : ""},
          {"", "REASON", reason}};
}

std::string EvidenceOf(const v1::ChoiceChange& change, const v1::Portfolio& portfolio) {
  return portfolio.choices().empty()
             ? "none"
             : calls::EvidenceWord(portfolio.evidence(), change.environment());
}

double Median(const v1::Portfolio& portfolio) {
  return portfolio.choices().empty() ? 0 : portfolio.choices(0).candidate().median_us();
}

output::Fields ChoiceChangeFields(const v1::ChoiceChange& change) {
  const v1::Portfolio& before = change.before();
  const v1::Portfolio& after = change.after();
  const std::string evidence = EvidenceOf(change, before), next = EvidenceOf(change, after);
  return {{"problem", "PROBLEM", input::ProblemValue(change.problem_text())},
          {"environment", "ENVIRONMENT", change.environment()},
          {"before", "BEFORE", output::Value(ChoiceWord(before)).Shown(FirstWord(before))},
          {"after", "AFTER", output::Value(ChoiceWord(after)).Shown(FirstWord(after))},
          {"evidence_before", "", evidence},
          {"evidence_after", "", next},
          {"", "EVIDENCE", absl::StrCat(evidence, " -> ", next)},
          {"time_us_before", "", output::Micros(Median(before))},
          {"time_us_after", "", output::Micros(Median(after))},
          {"", "TIME",
           absl::StrCat(output::FormatMicroseconds(Median(before)), " -> ",
                        output::FormatMicroseconds(Median(after)))}};
}

class ReleaseCommand final : public app::Command {
 public:
  void Register(CLI::App& root) override {
    CLI::App* verb = AddVerbGroup(root, "release", "what unmodified programs are served");
    AddVerbBelow(verb, "list", "all releases, newest first", ReleaseFields({}, 0), List);
    CLI::App* const diff = AddVerbBelow(
        verb, "diff", "what differs; without numbers, what waits for a promotion",
        ChoiceChangeFields({}), [this](app::Context& context) { return Diff(context); });
    diff->add_option("from", from_, "a release; without it the promoted one")->type_name("FROM");
    diff->add_option("to", to_, "another release; without it what a promotion would bring")
        ->type_name("TO");
    CLI::App* const promote =
        AddVerbBelow(verb, "promote", "serve the changed choices, or promote the canary", {},
                     [this](app::Context& context) { return Promote(context); });
    promote
        ->add_option("--canary", canary_,
                     "share of the processes that are served it first, such as 5%")
        ->type_name("SHARE");
    CLI::App* const rollback =
        AddVerbBelow(verb, "rollback", "roll the canary back, or serve an earlier release again",
                     {}, [this](app::Context& context) { return RollBack(context); });
    rollback
        ->add_option("release", to_, "release to serve again; without it the one promoted before")
        ->type_name("RELEASE");
    CLI::App* const fetch = AddVerbBelow(
        verb, "fetch", "bring the snapshot to a folder of this machine, for programs to read", {},
        [this](app::Context& context) { return FetchRelease(context, folder_, wait_, watch_); });
    fetch
        ->add_option("folder", folder_,
                     "folder, made if need be; what CONVTUNE_SNAPSHOT names then")
        ->type_name("FOLDER")
        ->required();
    input::AddTime(*fetch, "--wait", "longest wait for the daemon and its first snapshot",
                   [this](absl::Duration time) { wait_ = time; });
    input::AddTime(*fetch, "--watch", "interval at which to look again, until SIGTERM",
                   [this](absl::Duration time) { watch_ = time; });
    for (CLI::App* const app : {promote, rollback}) {
      app->add_option("--reason", reason_, "the reason, for those who find it later")
          ->type_name("TEXT");
      app->add_option("--author", author_, "who decides; without it your user name")
          ->type_name("NAME");
    }
  }

 private:
  static absl::StatusOr<app::ExitCode> List(app::Context& context) {
    ASSIGN_OR_RETURN(const auto list,
                     context.CallPages<v1::ListReleasesResponse>(v1::ListReleasesRequest()));
    context.PrintJson(list);
    if (context.format() == app::Format::kJson) return app::ExitCode::kDone;
    context.PrintRows(list.releases(), [&list](const v1::Release& release) {
      return ReleaseFields(release, list.promoted());
    });
    context.Say(Waiting(list.waiting_changes(), list.auto_promote_held()));
    if (list.below_evidence_count() > 0) {
      context.Say(calls::NotPublishedWord(list.below_evidence_count(), list.publish_evidence()));
    }
    SaySimulated(context);
    return app::ExitCode::kDone;
  }

  // A release has choices of all environments, and its row names none. Without an answer the list
  // stands as it is.
  static void SaySimulated(app::Context& context) {
    const auto response =
        context.CallPages<v1::ListEnvironmentsResponse>(v1::ListEnvironmentsRequest());
    if (!response.ok()) return;
    for (const v1::Environment& environment : response->environments()) {
      if (!IsSimulated(environment.name()) || environment.tuning_count() == 0) continue;
      context.Say("the choices for ", environment.name(),
                  " are simulated: no program on a GPU is served them");
    }
  }

  static std::string Waiting(int64_t changes, bool held) {
    if (changes == 0) return "no changed portfolio waits";
    return absl::StrCat(
        output::Counted(changes, "changed portfolio waits", "changed portfolios wait"),
        " for `convtune release promote`",
        held ? "; --auto-promote is held since the last rollback" : "");
  }

  absl::StatusOr<app::ExitCode> Diff(app::Context& context) const {
    auto request = context.NewRequest<v1::DiffReleasesRequest>();
    request.set_from(from_);
    request.set_to(to_);
    request.set_max_changes(10000);
    ASSIGN_OR_RETURN(const auto diff,
                     context.CallPages<v1::DiffReleasesResponse>(request, request.max_changes()));
    context.PrintJson(diff);
    if (context.format() == app::Format::kJson) return app::ExitCode::kDone;
    context.PrintRows(diff.changes(), ChoiceChangeFields);
    context.Say(output::Counted(diff.change_count(), "change"), " from release ", diff.from(),
                " to ",
                diff.to() != 0 ? absl::StrCat("release ", diff.to()) : "what is best known");
    if (diff.changes_size() < diff.change_count()) {
      context.Say("these are the first ", diff.changes_size(), "; choose with --environment");
    }
    return app::ExitCode::kDone;
  }

  absl::StatusOr<app::ExitCode> Promote(app::Context& context) const {
    v1::PromoteReleaseRequest request;
    if (!canary_.empty()) {
      ASSIGN_OR_RETURN(const int permille, output::ParsePermille("--canary", canary_));
      request.set_canary_permille(permille);
    }
    request.set_author(input::AuthorOf(author_));
    request.set_reason(reason_.empty() ? "promoted by hand" : reason_);
    ASSIGN_OR_RETURN(const auto release, context.Call<v1::Release>(request));
    context.PrintJson({{"release", release}});
    context.Say(release.state() == v1::RELEASE_STATE_CANARY
                    ? absl::StrCat("release ", release.number(), " is a canary for ",
                                   ShareWord(release.canary_permille()), " of the processes")
                    : absl::StrCat("release ", release.number(), " is promoted"));
    return AwaitPublished(context);
  }

  absl::StatusOr<app::ExitCode> RollBack(app::Context& context) const {
    v1::RollBackReleaseRequest request;
    request.set_author(input::AuthorOf(author_));
    request.set_reason(reason_.empty() ? "rolled back by hand" : reason_);
    request.set_release(to_);
    ASSIGN_OR_RETURN(const auto release, context.Call<v1::Release>(request));
    context.PrintJson({{"release", release}});
    context.Say(release.state() == v1::RELEASE_STATE_ROLLED_BACK
                    ? absl::StrCat("the canary, release ", release.number(), ", is rolled back")
                    : absl::StrCat("release ", release.number(), " has the choices of release ",
                                   release.restores(), " again"));
    return AwaitPublished(context);
  }

  int64_t from_ = 0;
  int64_t to_ = 0;
  std::string canary_, reason_, author_, folder_;
  absl::Duration wait_, watch_;  // zero: not given
};

// A daemon older than these two fields leaves both empty.
bool CanBeTunedHere(const v1::WantedProblem& problem) {
  return problem.can_be_tuned() || problem.environment_text().empty();
}

output::Fields WantedFields(const v1::WantedProblem& problem) {
  const bool here = CanBeTunedHere(problem);
  return {{"problem", "PROBLEM", input::ProblemValue(problem.problem_text())},
          // A name alone would not tell another version of cuDNN from the one that is here.
          {"environment", "ENVIRONMENT",
           output::Value(problem.environment())
               .Shown(here ? problem.environment() : problem.environment_text())},
          {"misses", "MISSES", problem.miss_count()},
          {"first_seen", "", output::FormatTimestamp(problem.first_seen_time())},
          {"last_seen", "LAST SEEN", output::FormatTimestamp(problem.last_seen_time())},
          {"attempts", "TRIED", problem.attempt_count()},
          {"last_error", "WHY NOT",
           output::Value(problem.last_error())
               .Shown(problem.last_error().empty() ? "-" : problem.last_error())},
          {"environment_text", "", problem.environment_text()},
          {"can_be_tuned", "", here}};
}

class WantedCommand final : public app::Command {
 public:
  void Register(CLI::App& root) override {
    AddVerb(root, "wanted", "what programs asked for in vain, most wanted first", WantedFields({}));
  }

  absl::StatusOr<app::ExitCode> Run(app::Context& context) override {
    auto request = context.NewRequest<v1::ListWantedRequest>();
    request.set_max_problems(10000);
    ASSIGN_OR_RETURN(const auto wanted,
                     context.CallPages<v1::ListWantedResponse>(request, request.max_problems()));
    context.PrintJson(wanted);
    context.PrintRows(wanted.wanted(), WantedFields);
    // CSV is for `convtune warm -`.
    if (context.format() != app::Format::kTable) return app::ExitCode::kDone;
    std::map<std::string, int> elsewhere;  // by the environment's text
    for (const v1::WantedProblem& problem : wanted.wanted()) {
      if (!CanBeTunedHere(problem)) ++elsewhere[problem.environment_text()];
    }
    int64_t left = wanted.wanted_count();
    std::string text = output::Counted(left, "problem") + " wanted";
    for (const auto& [environment, count] : elsewhere) {
      left -= count;
      absl::StrAppend(&text, "; ", count, " of them for ", environment,
                      ", which no device here has: tune them where one has it");
    }
    if (left > 0) {
      absl::StrAppend(&text, "; tune ", elsewhere.empty() ? "them" : "the others",
                      " with `convtune wanted --csv | convtune warm -`, "
                      "or start convtuned with --tune-wanted");
    }
    context.Say(text);
    return app::ExitCode::kDone;
  }
};

}  // namespace

std::unique_ptr<app::Command> NewReleaseCommand() { return std::make_unique<ReleaseCommand>(); }

std::unique_ptr<app::Command> NewWantedCommand() { return std::make_unique<WantedCommand>(); }

}  // namespace convtune::cli::commands

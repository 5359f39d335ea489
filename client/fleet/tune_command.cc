// The verbs that give the fleet work: tune and upgrade.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <ostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/cli/input/options.h"
#include "client/cli/input/problem_args.h"
#include "client/cli/output/progress.h"
#include "client/cli/output/units.h"
#include "client/fleet/commands.h"
#include "db/fleet/queue.h"
#include "db/fleet/releases.h"
#include "proto/base/clock.h"
#include "proto/base/status_macros.h"
#include "proto/convert/problem_list.h"

namespace convtune::fleet {
namespace {

constexpr absl::Duration kLook = absl::Milliseconds(200);
constexpr int64_t kMostDead = 100;

void AddTaskBudget(CLI::App& app, absl::Duration* budget) {
  cli::input::AddTime(app, "--budget", "time for one problem", [budget](absl::Duration time) {
    *budget = time;
  })->default_str("30s");
}

cli::output::Fields DeadFields(const db::fleet::DeadTask& task) {
  return {{"problem", "", task.problem_text},
          {"environment", "", task.environment_text},
          {"reasons", "", task.reasons}};
}

std::string ProgressLine(const db::fleet::BatchProgress& progress, absl::Duration elapsed) {
  std::string line = absl::StrFormat("%d of %d tuned", progress.done, progress.total());
  if (progress.dead > 0) absl::StrAppend(&line, ", ", progress.dead, " dead");
  if (progress.nodes > 0) absl::StrAppend(&line, ", ", progress.nodes, " nodes at it");
  if (progress.again > 0) absl::StrAppend(&line, ", ", progress.again, " wait for another node");
  const double share = static_cast<double>(progress.done + progress.dead) /
                       static_cast<double>(std::max<int64_t>(1, progress.total()));
  if (share > 0 && share < 1) {
    absl::StrAppend(&line, ", ", cli::output::FormatAge(elapsed * ((1 - share) / share)), " left");
  }
  return line;
}

std::string LoneText(int64_t lone) {
  return absl::StrCat(lone,
                      " wait for another node than those that measured them, and none is heard of");
}

class FleetTuneCommand final : public FleetCommand {
 public:
  using FleetCommand::FleetCommand;
  void Register(CLI::App& root) override {
    CLI::App* const app =
        AddVerb(root, "tune", "queue problems for the fleet's idle nodes, and watch");
    problems_.Register(*app);
    app->add_option("--environment", environment_, "name or text; see status");
    AddTaskBudget(*app, &request_.budget);
    app->add_option(
           "--nodes", request_.nodes,
           "how many nodes measure each problem. Default: 2 in an environment of more than "
           "three nodes, and a third where they disagree; else 1")
        ->check(CLI::Range(1, 1000));
    app->add_option("--author", request_.author, "who asks for it");
    app->add_option("--reason", request_.reason, "what for");
    app->add_flag("--force", force_, "tune also what a node knows already");
    app->add_flag("--no-wait", no_wait_, "queue and return");
    app->add_option("--watch", watch_, "watch a batch instead, by its number");
    app->add_option("--cancel", cancel_, "cancel a batch instead");
    app->add_flag("--dead", dead_, "list what nobody could tune, with the reasons, instead");
  }

  absl::StatusOr<cli::app::ExitCode> Run(cli::app::Context& context) override {
    db::fleet::BatchRequest request = request_;
    if (watch_ == 0 && cancel_ == 0 && !dead_) {
      ASSIGN_OR_RETURN(const cli::input::ProblemBatch batch, problems_.Read(context));
      if (!batch.errors.empty()) {
        return absl::InvalidArgumentError(
            absl::StrCat(batch.errors.size(), " rows are no problems; nothing was queued"));
      }
      for (const ProblemRow& row : MostWorkFirst(batch.rows)) {
        request.tasks.push_back(
            {row.problem.ToText(), EstimatedFlops(row.problem) * static_cast<double>(row.count)});
      }
      if (environment_.empty()) {
        return absl::InvalidArgumentError("--environment: is required");
      }
    }
    ASSIGN_OR_RETURN(const std::unique_ptr<db::postgres::Connection> postgres, Connect());
    if (cancel_ != 0) {
      ASSIGN_OR_RETURN(const int64_t cancelled, db::fleet::CancelBatch(*postgres, cancel_));
      ASSIGN_OR_RETURN(const db::fleet::BatchProgress left,
                       db::fleet::ReadProgress(*postgres, cancel_));
      const int64_t open = left.open();
      PrintOutcome(context, {{"batch", cancel_}, {"cancelled", cancelled}, {"open", open}},
                   absl::StrCat(cancelled, " cancelled",
                                open == 0 ? ""
                                          : absl::StrCat(", ", open,
                                                         " go on: this login may not end what "
                                                         "another login's nodes tune")));
      return open == 0 ? cli::app::ExitCode::kDone : cli::app::ExitCode::kFailed;
    }
    if (dead_) return ListDead(context, *postgres);
    if (watch_ != 0) return Watch(context, *postgres, watch_);
    request.kind = force_ ? db::fleet::BatchKind::kVerify : db::fleet::BatchKind::kTune;
    ASSIGN_OR_RETURN(request.environment_text,
                     db::fleet::ResolveFleetEnvironment(*postgres, environment_));
    db::fleet::FleetNames names(postgres.get());
    ASSIGN_OR_RETURN(const int64_t batch, db::fleet::QueueBatch(*postgres, names, request));
    if (batch == 0) {
      ASSIGN_OR_RETURN(const db::fleet::QueuedAlready queued,
                       db::fleet::FindQueued(*postgres, request));
      const std::string batches = absl::StrJoin(queued.batches, ", ");
      context.Say("every one of them is queued already, in batch ", batches,
                  queued.lone == 0 ? "" : "; " + LoneText(queued.lone));
      context.PrintJson({{"batch", 0},
                         {"queued_in", cli::output::Json{absl::StrCat("[", batches, "]")}},
                         {"lone", queued.lone}});
      return queued.lone == 0 ? cli::app::ExitCode::kDone : cli::app::ExitCode::kFailed;
    }
    context.Say("batch ", batch);
    if (!no_wait_) return Watch(context, *postgres, batch);
    context.PrintJson({{"batch", batch}});
    return cli::app::ExitCode::kDone;
  }

 private:
  absl::StatusOr<cli::app::ExitCode> ListDead(cli::app::Context& context,
                                              db::postgres::Connection& postgres) const {
    ASSIGN_OR_RETURN(const std::vector<db::fleet::DeadTask> dead,
                     db::fleet::ListDeadTasks(postgres, watch_, 10'000));
    if (context.format() == cli::app::Format::kJson || dead.empty()) {
      return PrintFleetRows(context, dead, DeadFields, "nothing is dead");
    }
    for (const db::fleet::DeadTask& task : dead) {
      context.io().out << task.problem_text << " in " << task.environment_text << '\n';
      for (const std::string& reason : task.reasons) context.io().out << "  " << reason << '\n';
    }
    return cli::app::ExitCode::kDone;
  }

  static absl::StatusOr<cli::app::ExitCode> Watch(cli::app::Context& context,
                                                  db::postgres::Connection& postgres,
                                                  int64_t batch) {
    CatchFleetSignals();
    const SteadyTime start = SteadyTime::Now();
    db::fleet::BatchProgress progress;
    {
      cli::output::ProgressBar bar(context.io());
      while (true) {
        ASSIGN_OR_RETURN(progress, db::fleet::ReadProgress(postgres, batch));
        bar.Show(ProgressLine(progress, SteadyTime::Now() - start));
        // What is left goes on when such a node comes back.
        if (progress.open() == progress.lone || FleetStopRequested()) break;
        absl::SleepFor(kLook);
      }
    }
    ASSIGN_OR_RETURN(const std::vector<db::fleet::DeadTask> dead,
                     db::fleet::ListDeadTasks(postgres, batch, kMostDead));
    std::string text =
        absl::StrFormat("batch %d: %d of %d tuned, %d dead, %d cancelled, %d open in %s", batch,
                        progress.done, progress.total(), progress.dead, progress.cancelled,
                        progress.open(), cli::output::FormatAge(SteadyTime::Now() - start));
    if (progress.lone > 0) {
      absl::StrAppend(&text, "\n", LoneText(progress.lone));
    }
    for (const db::fleet::DeadTask& task : dead) {
      absl::StrAppend(&text, "\ndead: ", task.problem_text, ": ",
                      absl::StrJoin(task.reasons, "; "));
    }
    PrintOutcome(context,
                 {{"batch", batch},
                  {"total", progress.total()},
                  {"done", progress.done},
                  {"dead", progress.dead},
                  {"cancelled", progress.cancelled},
                  {"open", progress.open()},
                  {"lone", progress.lone},
                  {"dead_letters", cli::output::JsonRows(dead, DeadFields)}},
                 text);
    return progress.dead > 0 || progress.open() > 0 ? cli::app::ExitCode::kFailed
                                                    : cli::app::ExitCode::kDone;
  }

  cli::input::ProblemArgs problems_;
  std::string environment_;
  db::fleet::BatchRequest request_;  // what the flags say; Run adds the rest to a copy
  bool force_ = false;
  bool no_wait_ = false;
  int64_t watch_ = 0;
  int64_t cancel_ = 0;
  bool dead_ = false;
};

class UpgradeCommand final : public FleetCommand {
 public:
  using FleetCommand::FleetCommand;
  void Register(CLI::App& root) override {
    CLI::App* const app =
        AddVerb(root, "upgrade", "queue what has to be verified after an upgrade");
    app->add_option("--from", from_, "environment before, name or text")->required();
    app->add_option("--to", to_, "environment after; without it the same, for another driver");
    app->add_option("--driver", driver_, "what was measured on another driver counts as old");
    AddTaskBudget(*app, &budget_);
    app->add_option("--most", most_, "queue only so many, the most used")->capture_default_str();
    decision_.Register(*app);
  }

  absl::StatusOr<cli::app::ExitCode> Run(cli::app::Context& context) override {
    if (to_.empty() && driver_.empty()) {
      return absl::InvalidArgumentError("--to or --driver: is required");
    }
    if (most_ < 1) return absl::InvalidArgumentError("--most: must be at least 1");
    ASSIGN_OR_RETURN(const std::unique_ptr<db::postgres::Connection> postgres, Connect());
    ASSIGN_OR_RETURN(const std::string from, db::fleet::ResolveFleetEnvironment(*postgres, from_));
    std::string to = from;
    if (!to_.empty()) {
      ASSIGN_OR_RETURN(to, db::fleet::ResolveFleetEnvironment(*postgres, to_));
    }
    db::fleet::FleetNames names(postgres.get());
    ASSIGN_OR_RETURN(const Environment from_environment, Environment::Parse(from));
    ASSIGN_OR_RETURN(const Environment to_environment, Environment::Parse(to));
    if (from_environment.gpu_model != to_environment.gpu_model) {
      return absl::InvalidArgumentError(
          "--to: must be an environment of the same GPU model: nothing of another one's says "
          "anything here");
    }
    db::fleet::BatchRequest request;
    request.budget = budget_;
    request.environment_text = to;
    request.author = decision_.author;
    request.reason = decision_.reason;
    ASSIGN_OR_RETURN(const int64_t batch, db::fleet::QueueStale(*postgres, names, from, driver_,
                                                                most_, /*again=*/true, &request));
    const auto problems = static_cast<int64_t>(request.tasks.size());
    return PrintOutcome(context, {{"batch", batch}, {"problems", problems}},
                        batch == 0 ? "nothing has to be verified"
                                   : absl::StrCat("batch ", batch, ": ", problems,
                                                  " problems, the most used first"));
  }

 private:
  DecisionArgs decision_;
  std::string from_, to_, driver_;
  absl::Duration budget_ = absl::Seconds(30);
  int64_t most_ = 100'000;
};

}  // namespace

std::unique_ptr<cli::app::Command> NewFleetTuneCommand(const PostgresFlags& flags) {
  return std::make_unique<FleetTuneCommand>(flags);
}
std::unique_ptr<cli::app::Command> NewUpgradeCommand(const PostgresFlags& flags) {
  return std::make_unique<UpgradeCommand>(flags);
}

}  // namespace convtune::fleet

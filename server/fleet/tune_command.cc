// The verbs that give the fleet work: tune and upgrade.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <iostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "client/cli/input/problem_args.h"
#include "client/cli/output/io.h"
#include "client/cli/output/units.h"
#include "db/fleet/queue.h"
#include "db/fleet/releases.h"
#include "proto/base/status_macros.h"
#include "proto/convert/problem_order.h"
#include "server/fleet/commands.h"

namespace convtune::fleet {
namespace {

constexpr absl::Duration kLook = absl::Milliseconds(200);
constexpr int64_t kMostDead = 100;

cli::output::Fields DeadFields(const db::fleet::DeadTask& task) {
  return {{"problem", "", task.problem_text},
          {"environment", "", task.environment_text},
          {"reasons", "", task.reasons}};
}

// A line that is written over on a terminal, and one for each change elsewhere.
class ProgressLine {
 public:
  void Show(const db::fleet::BatchProgress& progress, absl::Duration elapsed) {
    std::string line = absl::StrFormat("%d of %d tuned", progress.done, progress.total());
    if (progress.dead > 0) absl::StrAppend(&line, ", ", progress.dead, " dead");
    if (!progress.nodes.empty()) {
      absl::StrAppend(&line, ", ", progress.nodes.size(), " nodes at it");
    }
    if (!terminal_) return;
    const double share = static_cast<double>(progress.done + progress.dead) /
                         static_cast<double>(std::max<int64_t>(1, progress.total()));
    if (share > 0 && share < 1) {
      absl::StrAppend(&line, ", ", cli::output::FormatAge(elapsed * ((1 - share) / share)),
                      " left");
    }
    std::cerr << "\r\x1b[K" << line << std::flush;
    shown_ = true;
  }
  void End() {
    if (shown_) std::cerr << "\r\x1b[K" << std::flush;
  }

 private:
  const bool terminal_ = isatty(STDERR_FILENO) != 0;
  bool shown_ = false;
};

class FleetTuneCommand final : public FleetCommand {
 public:
  void Register(CLI::App& root) override {
    app_ = AddVerb(root, "tune", "queue problems for the fleet's idle nodes, and watch",
                   [this] { return Run(); });
    problems_.Register(*app_);
    app_->add_option("--environment", environment_, "name or text; see status");
    app_->add_option("--budget", budget_, "time for one problem")->capture_default_str();
    app_->add_option("--author", author_, "who asks for it");
    app_->add_option("--reason", reason_, "what for");
    app_->add_flag("--force", force_, "tune also what a node knows already");
    app_->add_flag("--no-wait", no_wait_, "queue and return");
    app_->add_option("--watch", watch_, "watch a batch instead, by its number");
    app_->add_option("--cancel", cancel_, "cancel a batch instead");
    app_->add_flag("--dead", dead_, "list what nobody could tune, with the reasons, instead");
  }

 private:
  absl::StatusOr<std::vector<ProblemRow>> ReadProblems() const {
    cli::output::Io io = cli::output::TerminalIo();
    cli::app::Context context(io, {}, cli::app::Format::kTable, *app_);
    ASSIGN_OR_RETURN(const cli::input::ProblemBatch batch, problems_.Read(context));
    if (!batch.errors.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat(batch.errors.size(), " rows are no problems; nothing was queued"));
    }
    return MostWorkFirst(batch.rows);
  }

  absl::StatusOr<cli::app::ExitCode> Run() {
    ASSIGN_OR_RETURN(const absl::Duration budget, cli::output::ParseTime("--budget", budget_));
    const bool queue = watch_ == 0 && cancel_ == 0 && !dead_;
    std::vector<ProblemRow> rows;
    if (queue) {
      ASSIGN_OR_RETURN(rows, ReadProblems());
      if (environment_.empty()) {
        return absl::InvalidArgumentError("--environment: is required");
      }
    }
    ASSIGN_OR_RETURN(const std::unique_ptr<db::postgres::Connection> postgres, Connect());
    if (cancel_ != 0) return Cancel(*postgres);
    if (dead_) return ListDead(*postgres);
    if (watch_ != 0) return Watch(*postgres, watch_);
    db::fleet::BatchRequest request;
    request.kind = force_ ? db::fleet::BatchKind::kVerify : db::fleet::BatchKind::kTune;
    ASSIGN_OR_RETURN(request.environment_text,
                     db::fleet::ResolveFleetEnvironment(*postgres, environment_));
    request.author = author_;
    request.reason = reason_;
    request.budget = budget;
    for (const ProblemRow& row : rows) {
      request.tasks.push_back(
          {row.problem.ToText(), EstimatedFlops(row.problem) * static_cast<double>(row.count)});
    }
    db::fleet::FleetNames names(postgres.get());
    ASSIGN_OR_RETURN(const int64_t batch, db::fleet::QueueBatch(*postgres, names, request));
    if (batch == 0) {
      std::cerr << "every one of them is queued already\n";
      return cli::app::ExitCode::kDone;
    }
    std::cerr << "batch " << batch << '\n';
    if (!no_wait_) return Watch(*postgres, batch);
    if (json_) Print(cli::output::JsonObject({{"batch", batch}}), "");
    return cli::app::ExitCode::kDone;
  }

  absl::StatusOr<cli::app::ExitCode> Cancel(db::postgres::Connection& postgres) {
    ASSIGN_OR_RETURN(const int64_t cancelled, db::fleet::CancelBatch(postgres, cancel_));
    std::cout << cancelled << " cancelled\n";
    return cli::app::ExitCode::kDone;
  }

  absl::StatusOr<cli::app::ExitCode> ListDead(db::postgres::Connection& postgres) {
    ASSIGN_OR_RETURN(const std::vector<db::fleet::DeadTask> dead,
                     db::fleet::ListDeadTasks(postgres, watch_, 10'000));
    if (json_) {
      Print(cli::output::JsonRows(dead, DeadFields), "");
      return cli::app::ExitCode::kDone;
    }
    for (const db::fleet::DeadTask& task : dead) {
      std::cout << task.problem_text << " in " << task.environment_text << '\n';
      for (const std::string& reason : task.reasons) std::cout << "  " << reason << '\n';
    }
    return cli::app::ExitCode::kDone;
  }

  absl::StatusOr<cli::app::ExitCode> Watch(db::postgres::Connection& postgres, int64_t batch) {
    CatchFleetSignals();
    const absl::Time start = absl::Now();
    ProgressLine line;
    db::fleet::BatchProgress progress;
    while (true) {
      ASSIGN_OR_RETURN(progress, db::fleet::ReadProgress(postgres, batch));
      line.Show(progress, absl::Now() - start);
      if (progress.ended() || FleetStopRequested()) break;
      absl::SleepFor(kLook);
    }
    line.End();
    ASSIGN_OR_RETURN(const std::vector<db::fleet::DeadTask> dead,
                     db::fleet::ListDeadTasks(postgres, batch, kMostDead));
    if (json_) {
      Print(cli::output::JsonObject({{"batch", batch},
                                     {"total", progress.total()},
                                     {"done", progress.done},
                                     {"dead", progress.dead},
                                     {"cancelled", progress.cancelled},
                                     {"open", progress.queued + progress.leased},
                                     {"dead_letters", cli::output::JsonRows(dead, DeadFields)}}),
            "");
    } else {
      std::cout << absl::StrFormat(
          "batch %d: %d of %d tuned, %d dead, %d cancelled, %d open in %s\n", batch, progress.done,
          progress.total(), progress.dead, progress.cancelled, progress.queued + progress.leased,
          cli::output::FormatAge(absl::Now() - start));
      for (const db::fleet::DeadTask& task : dead) {
        std::cout << "dead: " << task.problem_text << ": " << absl::StrJoin(task.reasons, "; ")
                  << '\n';
      }
    }
    return progress.dead > 0 || !progress.ended() ? cli::app::ExitCode::kFailed
                                                  : cli::app::ExitCode::kDone;
  }

  CLI::App* app_ = nullptr;
  cli::input::ProblemArgs problems_;
  std::string environment_;
  std::string budget_ = "30s";
  bool force_ = false;
  bool no_wait_ = false;
  int64_t watch_ = 0;
  int64_t cancel_ = 0;
  bool dead_ = false;
};

class UpgradeCommand final : public FleetCommand {
 public:
  void Register(CLI::App& root) override {
    CLI::App* const app = AddVerb(root, "upgrade", "queue what has to be verified after an upgrade",
                                  [this] { return Run(); });
    app->add_option("--from", from_, "environment before, name or text")->required();
    app->add_option("--to", to_, "environment after; without it the same, for another driver");
    app->add_option("--driver", driver_, "what was measured on another driver counts as old");
    app->add_option("--budget", budget_, "time for one problem")->capture_default_str();
    app->add_option("--most", most_, "queue only so many, the most used")->capture_default_str();
    AddDecision(app);
  }

 private:
  absl::Status Run() {
    RETURN_IF_ERROR(CheckDecision());
    ASSIGN_OR_RETURN(const absl::Duration budget, cli::output::ParseTime("--budget", budget_));
    if (to_.empty() && driver_.empty()) {
      return absl::InvalidArgumentError("--to or --driver: is required");
    }
    if (most_ < 1) return absl::InvalidArgumentError("--most: must be at least 1");
    ASSIGN_OR_RETURN(const std::unique_ptr<db::postgres::Connection> postgres, Connect());
    RETURN_IF_ERROR(PoolEverything(*postgres));
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
    ASSIGN_OR_RETURN(const int64_t from_id, names.Environment(from_environment));
    ASSIGN_OR_RETURN(const int64_t to_id, names.Environment(to_environment));
    db::fleet::BatchRequest request;
    request.kind = db::fleet::BatchKind::kVerify;
    request.environment_text = to;
    request.author = author_;
    request.reason = reason_;
    request.budget = budget;
    ASSIGN_OR_RETURN(request.tasks, db::fleet::FindStale(*postgres, from_id, to_id, driver_));
    if (static_cast<int64_t>(request.tasks.size()) > most_) {
      request.tasks.resize(static_cast<size_t>(most_));
    }
    int64_t batch = 0;
    if (!request.tasks.empty()) {
      ASSIGN_OR_RETURN(batch, db::fleet::QueueBatch(*postgres, names, request));
    }
    const auto problems = static_cast<int64_t>(request.tasks.size());
    Print(cli::output::JsonObject({{"batch", batch}, {"problems", problems}}),
          batch == 0
              ? "nothing has to be verified"
              : absl::StrCat("batch ", batch, ": ", problems, " problems, the most used first"));
    return absl::OkStatus();
  }

  std::string from_, to_, driver_;
  std::string budget_ = "30s";
  int64_t most_ = 100'000;
};

}  // namespace

std::unique_ptr<FleetCommand> NewFleetTuneCommand() { return std::make_unique<FleetTuneCommand>(); }
std::unique_ptr<FleetCommand> NewUpgradeCommand() { return std::make_unique<UpgradeCommand>(); }

}  // namespace convtune::fleet

#include <CLI/CLI.hpp>
#include <ostream>

#include "absl/strings/str_cat.h"
#include "client/cli/calls/tuning_run.h"
#include "client/cli/commands/commands.h"
#include "client/cli/input/problem_args.h"
#include "client/cli/output/json.h"
#include "client/cli/output/table.h"
#include "client/cli/output/units.h"
#include "proto/base/status_macros.h"

namespace convtune::cli::commands {
namespace {

output::Color StateColor(v1::JobState state) {
  if (state == v1::JOB_STATE_FAILED) return output::Color::kRed;
  return state == v1::JOB_STATE_SUCCEEDED ? output::Color::kGreen : output::Color::kNone;
}

// "3" and "jobs/3" are the same.
absl::StatusOr<std::string> JobName(const std::string& text) {
  const std::string number = text.compare(0, 5, "jobs/") == 0 ? text.substr(5) : text;
  if (number.empty() || number.find_first_not_of("0123456789") != std::string::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat("JOB: must be a number or jobs/NUMBER, is '", text, "'"));
  }
  return absl::StrCat("jobs/", number);
}

void Print(app::Context& context, const std::vector<v1::TuningJob>& jobs) {
  context.PrintCsv({"job", "state", "environment", "problems", "succeeded", "failed", "skipped",
                    "created", "ended", "persisted", "abandoned"});
  output::Table table({{"JOB"},
                       {"STATE"},
                       {"ENVIRONMENT"},
                       {"DONE", output::Align::kRight},
                       {"FAILED", output::Align::kRight},
                       {"CREATED"},
                       {"NOW"}});
  for (const v1::TuningJob& job : jobs) {
    context.PrintCsv({job.name(), output::EnumWord(job.state()), job.environment(),
                      absl::StrCat(job.problem_count()), absl::StrCat(job.succeeded_count()),
                      absl::StrCat(job.failed_count()), absl::StrCat(job.skipped_count()),
                      output::FormatTimestamp(job.create_time()),
                      job.has_end_time() ? output::FormatTimestamp(job.end_time()) : "",
                      job.persisted() ? "true" : "false", job.abandoned() ? "true" : "false"});
    table.Add(
        {job.name(),
         {absl::StrCat(output::EnumWord(job.state()), job.abandoned() ? ", callers gone" : ""),
          StateColor(job.state())},
         job.environment(),
         absl::StrCat(job.succeeded_count() + job.failed_count(), "/", job.problem_count()),
         absl::StrCat(job.failed_count()),
         output::FormatTimestamp(job.create_time()),
         job.current_problem().empty() ? "-" : input::ShortProblem(job.current_problem())});
  }
  context.PrintTable(table);
}

class JobsCommand final : public app::Command {
 public:
  void Register(CLI::App& root) override {
    CLI::App* verb = AddVerbGroup(root, "jobs", "tunings that were asked for");
    AddVerbBelow(verb, "list", "all jobs, newest first", app::Rows::kYes);
    show_ = AddVerbBelow(verb, "show", "one job, with its failures", app::Rows::kYes);
    watch_ = AddVerbBelow(verb, "watch", "wait until a job has ended", app::Rows::kYes);
    cancel_ = AddVerbBelow(verb, "cancel", "stop a job; what it has done is kept", app::Rows::kYes);
    for (CLI::App* app : {show_, watch_, cancel_}) {
      app->add_option("job", name_, "number of the job")->type_name("JOB")->required();
    }
  }

  absl::StatusOr<app::ExitCode> Run(app::Context& context) override {
    std::string name;
    if (show_->parsed() || watch_->parsed() || cancel_->parsed()) {
      ASSIGN_OR_RETURN(name, JobName(name_));
    }
    ASSIGN_OR_RETURN(const auto client, context.Connect());
    if (name.empty()) return List(context, *client);
    ASSIGN_OR_RETURN(const auto job, One(context, *client, name));
    context.PrintJson(output::JsonObject().Add("job", job).Take());
    Print(context, {job});
    const app::ExitCode code = calls::ReportJob(context, job);
    return cancel_->parsed() ? app::ExitCode::kDone : code;
  }

 private:
  absl::StatusOr<v1::TuningJob> One(app::Context& context, client::Client& client,
                                    const std::string& name) const {
    if (watch_->parsed()) return calls::WatchJob(context, client, name);
    if (cancel_->parsed()) {
      v1::CancelTuningJobRequest request;
      request.set_name(name);
      return client.CancelTuningJob(request);
    }
    v1::GetTuningJobRequest request;
    request.set_name(name);
    return client.GetTuningJob(request);
  }

  static absl::StatusOr<app::ExitCode> List(app::Context& context, client::Client& client) {
    v1::ListTuningJobsRequest request;
    request.set_page_size(1000);
    ASSIGN_OR_RETURN(const auto all, client.ListTuningJobs(request));
    std::vector<v1::TuningJob> jobs;
    const std::string& wanted = context.settings().environment;
    for (const v1::TuningJob& job : all.jobs()) {
      if (wanted.empty() || job.environment() == wanted) jobs.push_back(job);
    }
    if (context.format() == app::Format::kJson) {
      context.io().out << output::JsonObject().AddRaw("jobs", output::JsonMessages(jobs)).Take()
                       << "\n";
    } else {
      Print(context, jobs);
      context.Say(absl::StrCat(jobs.size(), jobs.size() == 1 ? " job" : " jobs"));
    }
    return app::ExitCode::kDone;
  }

  CLI::App* show_ = nullptr;
  CLI::App* watch_ = nullptr;
  CLI::App* cancel_ = nullptr;
  std::string name_;
};

}  // namespace

std::unique_ptr<app::Command> NewJobsCommand() { return std::make_unique<JobsCommand>(); }

}  // namespace convtune::cli::commands

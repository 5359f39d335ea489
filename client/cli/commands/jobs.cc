#include <CLI/CLI.hpp>

#include "absl/strings/str_cat.h"
#include "client/cli/calls/tuning_run.h"
#include "client/cli/commands/commands.h"
#include "client/cli/input/problem_args.h"
#include "client/cli/output/units.h"
#include "client/cli/output/value.h"
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

output::Fields JobFields(const v1::TuningJob& job) {
  const std::string state = output::EnumWord(job.state());
  const int done = job.succeeded_count() + job.failed_count();
  return {{"job", "JOB", job.name()},
          {"state", "STATE",
           output::Value(state)
               .Shown(state + (job.abandoned() ? ", callers gone" : ""))
               .In(StateColor(job.state()))},
          {"environment", "ENVIRONMENT", job.environment()},
          {"problems", "DONE",
           output::Value(job.problem_count()).Shown(absl::StrCat(done, "/", job.problem_count()))},
          {"succeeded", "", job.succeeded_count()},
          {"failed", "FAILED", job.failed_count()},
          {"skipped", "", job.skipped_count()},
          {"created", "CREATED", output::FormatTimestamp(job.create_time())},
          {"ended", "", job.has_end_time() ? output::FormatTimestamp(job.end_time()) : ""},
          {"persisted", "", job.persisted()},
          {"abandoned", "", job.abandoned()},
          {"", "NOW",
           job.current_problem().empty() ? "-" : input::ProblemValue(job.current_problem())}};
}

class JobsCommand final : public app::Command {
 public:
  void Register(CLI::App& root) override {
    CLI::App* verb = AddVerbGroup(root, "jobs", "tunings that were asked for");
    CLI::App* list = AddVerbBelow(verb, "list", "all jobs, newest first", app::Rows::kYes);
    app::SayColumns(list, JobFields({}));
    show_ = AddVerbBelow(verb, "show", "one job, with its failures", app::Rows::kYes);
    watch_ = AddVerbBelow(verb, "watch", "wait until a job has ended", app::Rows::kYes);
    cancel_ = AddVerbBelow(verb, "cancel", "stop a job; what it has done is kept", app::Rows::kYes);
    for (CLI::App* app : {show_, watch_, cancel_}) {
      app->add_option("job", name_, "number of the job")->type_name("JOB")->required();
      app::SayColumns(app, JobFields({}));
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
    context.PrintJson({{"job", job}});
    context.PrintRows(std::vector<v1::TuningJob>{job}, JobFields);
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
      return client.Call<v1::TuningJob>(request);
    }
    v1::GetTuningJobRequest request;
    request.set_name(name);
    return client.Call<v1::TuningJob>(request);
  }

  static absl::StatusOr<app::ExitCode> List(app::Context& context, client::Client& client) {
    v1::ListTuningJobsRequest request;
    request.set_page_size(1000);
    ASSIGN_OR_RETURN(const auto all, client.CallPages<v1::ListTuningJobsResponse>(request));
    std::vector<v1::TuningJob> jobs;
    const std::string& wanted = context.settings().environment;
    for (const v1::TuningJob& job : all.jobs()) {
      if (wanted.empty() || job.environment() == wanted) jobs.push_back(job);
    }
    context.PrintJson({{"jobs", output::JsonMessages(jobs)}});
    context.PrintRows(jobs, JobFields);
    if (context.format() != app::Format::kJson) {
      context.Say(output::Counted(static_cast<int64_t>(jobs.size()), "job"));
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

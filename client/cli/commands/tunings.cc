// The verbs get, tune, list, delete, jobs, pin and unpin.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <iterator>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "client/cli/calls/answers.h"
#include "client/cli/calls/tuning_run.h"
#include "client/cli/commands/commands.h"
#include "client/cli/input/options.h"
#include "client/cli/input/problem_args.h"
#include "client/cli/output/fields.h"
#include "client/cli/output/units.h"
#include "proto/base/errors.h"
#include "proto/base/status_macros.h"
#include "proto/convert/record_codec.h"
#include "proto/model/enums.h"
#include "proto/model/environment.h"
#include "proto/model/tuning/candidate.h"

namespace convtune::cli::commands {
namespace {

class GetCommand final : public app::Command {
 public:
  void Register(CLI::App& root) override {
    CLI::App* app =
        AddVerb(root, "get", "the best algorithm of each problem", calls::AnswerFields({}, {}));
    problems_.Register(*app);
    input::AddConstraints(*app, request_.mutable_constraints());
    app->add_option("--on-miss", on_miss_, "what a miss does")
        ->check(CLI::IsMember({"none", "heuristic", "enqueue", "tune"}))
        ->capture_default_str();
    app->add_option_function<std::string>(
           "--min-evidence",
           [this](const std::string& word) {
             request_.set_min_evidence(static_cast<v1::Evidence>(*ParseEvidence(word)));
           },
           "least evidence that counts as a hit")
        ->check(CLI::IsMember({"heuristic", "observed", "incomplete", "measured"}));
    input::AddTime(*app, "--max-age", "answers of tunings this old are misses, such as 30m",
                   [this](absl::Duration age) { *request_.mutable_max_age() = ToProto(age); });
    app->add_flag_callback(
        "--hints", [this] { request_.set_include_hints(true); },
        "with a miss, show what another cuDNN version has");
  }

  absl::StatusOr<app::ExitCode> Run(app::Context& context) override {
    ASSIGN_OR_RETURN(const auto batch, problems_.Read(context));
    v1::OnMiss on_miss{};
    v1::OnMiss_Parse("ON_MISS_" + absl::AsciiStrToUpper(on_miss_), &on_miss);
    request_.set_on_miss(on_miss);

    const bool waits = on_miss_ == "heuristic" || on_miss_ == "tune";
    calls::BatchAnswers answers;
    if (!batch.rows.empty()) {
      answers = calls::BatchGetAll(context, request_, batch.rows,
                                   waits ? std::optional(context.long_timeout()) : std::nullopt);
    }
    calls::PrintAnswers(context, answers, batch.errors, nullptr);
    const app::ExitCode code = app::Worse(batch.code, answers.code);
    // An answer that stands in for a measured one is in memory alone on purpose.
    const auto lost = std::ranges::count_if(answers.rows, [](const calls::AnswerRow& row) {
      const v1::Answer& answer = row.result.answer();
      return row.result.has_answer() && !answer.persisted() && !answer.stands_in();
    });
    if (lost == 0) return code;
    context.SayError(output::Counted(lost, "result is", "results are"),
                     " not on disk, and lost with the daemon; see `convtune doctor`");
    return app::Worse(code, app::ExitCode::kFailed);
  }

 private:
  input::ProblemArgs problems_;
  v1::BatchGetRequest request_;
  std::string on_miss_ = "none";
};

class TuneCommand final : public app::Command {
 public:
  void Register(CLI::App& root) override {
    CLI::App* app = AddVerb(root, "tune", "search the best algorithm of each problem, and keep it",
                            calls::AnswerFields({}, {}));
    problems_.Register(*app);
    input::AddConstraints(*app, get_.mutable_constraints());
    v1::TuningOptions* const options = request_.mutable_options();
    input::AddBudget(*app, options);
    app->add_option_function<int32_t>(
           "--max-candidates", [=](int32_t most) { options->set_max_candidates(most); },
           "most candidates to try; 0: no limit")
        ->type_name("N")
        ->check(CLI::Range(0, 100'000));
    app->add_option_function<std::string>(
           "--search",
           [=](const std::string& search) {
             options->set_search(search == "exhaustive" ? v1::SEARCH_EXHAUSTIVE
                                                        : v1::SEARCH_HEURISTICS);
           },
           "candidates to try: those that heuristics list, or every engine")
        ->check(CLI::IsMember({"heuristics", "exhaustive"}))
        ->default_str("heuristics");
    app->add_flag_callback(
        "--all-timings", [=] { options->set_all_timings(true); },
        "time finalists with every cache state, launched and as CUDA graph replays");
    app->add_flag_callback(
        "--force", [this] { request_.set_force(true); }, "tune also what has been tuned already");
  }

  absl::StatusOr<app::ExitCode> Run(app::Context& context) override {
    // What the caller cannot use is not searched either.
    request_.mutable_options()->set_api(get_.constraints().api());
    ASSIGN_OR_RETURN(const auto batch, problems_.Read(context));

    calls::TuningRun run;
    if (!batch.rows.empty()) run = calls::RunTuning(context, request_, batch.rows);
    calls::BatchAnswers answers;
    if (!run.jobs.empty() && !run.cancelled && run.code != app::ExitCode::kUnreachable) {
      answers = calls::BatchGetAll(context, get_, batch.rows);
    }
    std::vector<ProblemRowError> invalid = batch.errors;
    invalid.insert(invalid.end(), run.errors.begin(), run.errors.end());
    calls::PrintAnswers(context, answers, invalid, &run.jobs);
    return app::Worse(batch.code, app::Worse(run.code, answers.code));
  }

 private:
  input::ProblemArgs problems_;
  v1::CreateTuningJobRequest request_;
  v1::BatchGetRequest get_;
};

output::Fields TuningFields(const v1::Tuning& tuning) {
  return {{"problem", "PROBLEM", input::ProblemValue(tuning.problem_text())},
          {"environment", "ENVIRONMENT", tuning.environment().name()},
          {"winner", "", tuning.winner()},
          {"evidence", "EVIDENCE",
           calls::EvidenceValue(tuning.evidence(), tuning.environment().name())},
          {"origin", "", output::EnumWord(tuning.origin())},
          {"candidates", "CANDIDATES", tuning.candidate_count()},
          {"tuned", "TUNED", output::FormatTimestamp(tuning.tune_time())},
          {"tuning_id", "", tuning.id()},
          {"incomplete_message", "", tuning.incomplete_message()},
          {"", "WINNER", tuning.winner().empty() ? "-" : tuning.winner()}};
}

output::Fields PinFields(const v1::PinRecord& pin) {
  const std::string until = pin.has_expire_time() ? output::FormatTimestamp(pin.expire_time()) : "";
  return {{"problem", "PROBLEM", input::ProblemValue(pin.problem_text())},
          {"environment", "ENVIRONMENT", pin.environment()},
          {"candidate", "CANDIDATE", pin.candidate()},
          {"reason", "", pin.reason()},
          {"since", "SINCE", output::FormatTimestamp(pin.create_time())},
          {"until", "UNTIL", output::Value(until).Shown(until.empty() ? "unpin" : until)},
          {"", "REASON", pin.reason()}};
}

// Prints the rows in the context's format, as the JSON member `key`, and says how many there are.
template <typename Rows, typename FieldsOf>
app::ExitCode PrintList(app::Context& context, const char* key, const Rows& rows,
                        const FieldsOf& fields_of, const std::string& one) {
  if (context.format() == app::Format::kJson) {
    context.PrintJson({{key, output::JsonMessages(rows)}});
  } else {
    context.PrintRows(rows, fields_of);
    context.Say(output::Counted(std::distance(rows.begin(), rows.end()), one));
  }
  return app::ExitCode::kDone;
}

class ListCommand final : public app::Command {
 public:
  void Register(CLI::App& root) override {
    CLI::App* app = AddVerb(root, "list", "what the database holds", TuningFields({}));
    app->add_option("--filter", filter_, "only problems whose text form contains this")
        ->type_name("TEXT");
    app->add_flag("--pins", pins_, "the pins instead of the tunings");
    app::SayColumns(app, PinFields({}), " with --pins");
  }

  absl::StatusOr<app::ExitCode> Run(app::Context& context) override {
    return pins_ ? ListPins(context) : ListTunings(context);
  }

 private:
  absl::StatusOr<app::ExitCode> ListTunings(app::Context& context) const {
    auto request = context.NewRequest<v1::ListTuningsRequest>();
    request.set_text_filter(filter_);
    request.set_page_size(1000);
    ASSIGN_OR_RETURN(const auto list, context.CallPages<v1::ListTuningsResponse>(request));
    return PrintList(context, "tunings", list.tunings(), TuningFields, "tuning");
  }

  absl::StatusOr<app::ExitCode> ListPins(app::Context& context) const {
    ASSIGN_OR_RETURN(const auto response, context.CallPages<v1::ListPinsResponse>(
                                              context.NewRequest<v1::ListPinsRequest>()));
    std::vector<v1::PinRecord> pins;
    for (const v1::PinRecord& pin : response.pins()) {
      if (pin.problem_text().find(filter_) != std::string::npos) pins.push_back(pin);
    }
    return PrintList(context, "pins", pins, PinFields, "pin");
  }

  std::string filter_;
  bool pins_ = false;
};

class DeleteCommand final : public app::Command {
 public:
  void Register(CLI::App& root) override {
    problems_.Register(*AddVerb(root, "delete", "forget the tunings of problems; pins stay"));
  }

  absl::StatusOr<app::ExitCode> Run(app::Context& context) override {
    ASSIGN_OR_RETURN(const auto batch, problems_.Read(context));
    // Doubles count once, so that what is missing can be told.
    const std::vector<ProblemRow> rows = Distinct(batch.rows);
    int64_t deleted = 0;
    app::ExitCode code = batch.code;
    for (const auto& asked : calls::SplitIntoRequests(rows)) {
      const auto response = context.Call<v1::DeleteTuningResponse>(
          calls::WithProblems(context.NewRequest<v1::DeleteTuningRequest>(), asked));
      if (!response.ok()) {
        code = app::Worse(code, context.Fail(response.status()));
        break;
      }
      deleted += response->deleted_count();
    }
    if (deleted < static_cast<int64_t>(rows.size())) code = app::Worse(code, app::ExitCode::kMiss);
    context.PrintJson({{"deleted", deleted}, {"asked", rows.size()}});
    context.Say("deleted ", deleted, " of ", rows.size(), " tunings");
    return code;
  }

 private:
  input::ProblemArgs problems_;
};

output::Color StateColor(v1::JobState state) {
  if (state == v1::JOB_STATE_FAILED) return output::Color::kRed;
  return state == v1::JOB_STATE_SUCCEEDED ? output::Color::kGreen : output::Color::kNone;
}

// "3" and "jobs/3" are the same.
absl::StatusOr<std::string> JobName(const std::string& text) {
  const std::string number = text.compare(0, 5, "jobs/") == 0 ? text.substr(5) : text;
  if (number.empty() || number.find_first_not_of("0123456789") != std::string::npos) {
    return InvalidArgument("JOB: must be a number or jobs/NUMBER, is '", text, "'");
  }
  return absl::StrCat("jobs/", number);
}

// True if a job of `environment` is one of `wanted`: each is an environment's name, or its text.
bool IsIn(const std::string& environment, const std::string& wanted) {
  const auto name_of = [](const std::string& words) {
    const absl::StatusOr<Environment> text = Environment::Parse(words);
    return text.ok() ? text->Name() : words;
  };
  return environment == wanted || environment == name_of(wanted) || name_of(environment) == wanted;
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
    AddVerbBelow(verb, "list", "all jobs, newest first", JobFields({}), List);
    AddVerbOfOne(verb, "show", "one job, with its failures", Call<v1::GetTuningJobRequest>);
    AddVerbOfOne(verb, "watch", "wait until a job has ended", calls::WatchJob);
    cancel_ = AddVerbOfOne(verb, "cancel", "stop a job; what it has done is kept",
                           Call<v1::CancelTuningJobRequest>);
  }

 private:
  // A verb that `call`s the daemon for the job of a name, and prints what the job is then.
  CLI::App* AddVerbOfOne(CLI::App* verb, const std::string& name, const std::string& description,
                         absl::StatusOr<v1::TuningJob> (*call)(app::Context&,
                                                               const std::string& job)) {
    const auto run = [this, call](app::Context& context) -> absl::StatusOr<app::ExitCode> {
      ASSIGN_OR_RETURN(const std::string job_name, JobName(name_));
      ASSIGN_OR_RETURN(const v1::TuningJob job, call(context, job_name));
      context.PrintJson({{"job", job}});
      context.PrintRows(std::vector<v1::TuningJob>{job}, JobFields);
      const app::ExitCode code = calls::ReportJob(context, job);
      return cancel_->parsed() ? app::ExitCode::kDone : code;
    };
    CLI::App* const app = AddVerbBelow(verb, name, description, JobFields({}), run);
    app->add_option("job", name_, "number of the job")->type_name("JOB")->required();
    return app;
  }

  template <typename Request>
  static absl::StatusOr<v1::TuningJob> Call(app::Context& context, const std::string& job) {
    Request request;
    request.set_name(job);
    return context.Call<v1::TuningJob>(request);
  }

  static absl::StatusOr<app::ExitCode> List(app::Context& context) {
    v1::ListTuningJobsRequest request;
    request.set_page_size(1000);
    ASSIGN_OR_RETURN(const auto all, context.CallPages<v1::ListTuningJobsResponse>(request));
    std::vector<v1::TuningJob> jobs;
    const std::string& wanted = context.settings().environment;
    for (const v1::TuningJob& job : all.jobs()) {
      if (wanted.empty() || IsIn(job.environment(), wanted)) jobs.push_back(job);
    }
    return PrintList(context, "jobs", jobs, JobFields, "job");
  }

  CLI::App* cancel_ = nullptr;
  std::string name_;
};

class PinCommand final : public app::Command {
 public:
  void Register(CLI::App& root) override {
    CLI::App* app = AddVerb(root, "pin", "make one candidate the answer, whatever was measured");
    problem_.RegisterOne(*app);
    app->add_option("candidate", *request_.mutable_candidate(),
                    "candidate as `convtune explain` shows it; of a pattern such as eng47 the best "
                    "that fits")
        ->type_name("CANDIDATE")
        ->required();
    app->add_option("--reason", *request_.mutable_reason(),
                    "the reason, for those who find it later")
        ->type_name("TEXT")
        ->required();
    input::AddTime(
        *app, "--ttl", "how long the pin holds, such as 72h; without it until unpin",
        [this](absl::Duration ttl) { *request_.mutable_ttl() = ToProto(ttl); }, absl::Seconds(1));
  }

  absl::StatusOr<app::ExitCode> Run(app::Context& context) override {
    ASSIGN_OR_RETURN(const auto problem, problem_.ReadOne());
    if (const auto candidate = CandidatePattern::Parse(request_.candidate()); !candidate.ok()) {
      return InvalidArgument("CANDIDATE: ", candidate.status().message());
    }
    request_.set_environment(context.settings().environment);
    request_.mutable_problem()->set_text(problem.ToText());
    ASSIGN_OR_RETURN(const auto pin, context.Call<v1::PinRecord>(request_));
    context.PrintJson({{"pin", pin}});
    const std::string until =
        pin.has_expire_time() ? output::FormatTimestamp(pin.expire_time()) : "unpinned";
    context.Say("pinned ", pin.candidate(), " in ", pin.environment(), " until ", until);
    return AwaitPublished(context);
  }

 private:
  input::ProblemArgs problem_;
  v1::PinRequest request_;
};

class UnpinCommand final : public app::Command {
 public:
  void Register(CLI::App& root) override {
    CLI::App* app = AddVerb(root, "unpin", "end a pin");
    problem_.RegisterOne(*app);
    app->add_option("--fleet-pin", fleet_pin_,
                    "number of a fleet pin; only after this node left the fleet");
  }

  absl::StatusOr<app::ExitCode> Run(app::Context& context) override {
    ASSIGN_OR_RETURN(const auto problem, problem_.ReadOne());
    auto request = context.NewRequest<v1::UnpinRequest>();
    request.mutable_problem()->set_text(problem.ToText());
    request.set_fleet_pin(fleet_pin_);
    ASSIGN_OR_RETURN(const auto response, context.Call<v1::UnpinResponse>(request));
    context.PrintJson({{"unpinned", problem.ToText()}});
    context.Say("unpinned " + input::ShortProblem(problem.ToText()));
    return AwaitPublished(context);
  }

 private:
  input::ProblemArgs problem_;
  int64_t fleet_pin_ = 0;
};

}  // namespace

std::unique_ptr<app::Command> NewGetCommand() { return std::make_unique<GetCommand>(); }

std::unique_ptr<app::Command> NewTuneCommand() { return std::make_unique<TuneCommand>(); }

std::unique_ptr<app::Command> NewListCommand() { return std::make_unique<ListCommand>(); }

std::unique_ptr<app::Command> NewDeleteCommand() { return std::make_unique<DeleteCommand>(); }

std::unique_ptr<app::Command> NewJobsCommand() { return std::make_unique<JobsCommand>(); }

std::unique_ptr<app::Command> NewPinCommand() { return std::make_unique<PinCommand>(); }

std::unique_ptr<app::Command> NewUnpinCommand() { return std::make_unique<UnpinCommand>(); }

}  // namespace convtune::cli::commands

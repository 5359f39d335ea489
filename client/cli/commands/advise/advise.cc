#include <CLI/CLI.hpp>
#include <ostream>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/calls/answer_output.h"
#include "client/cli/calls/batch_get.h"
#include "client/cli/calls/tuning_run.h"
#include "client/cli/commands/advise/advice.h"
#include "client/cli/commands/commands.h"
#include "client/cli/input/budget_args.h"
#include "client/cli/input/constraint_args.h"
#include "client/cli/input/problem_args.h"
#include "client/cli/output/units.h"
#include "client/cli/output/value.h"
#include "proto/base/status_macros.h"

namespace convtune::cli::commands::advise {
namespace {

std::string Rounded(int digits, double value) {
  return value > 0 ? absl::StrFormat("%.*f", digits, value) : "-";
}

// JSON has the number as it is.
output::Value Figure(int digits, double value) {
  output::Value figure = value;
  figure.json = figure.written;
  figure.written = Rounded(6, value);
  return figure.Shown(Rounded(digits, value));
}

std::string Word(const v1::BatchGetResult& result) {
  return result.has_answer()
             ? calls::EvidenceWord(result.answer().evidence(), result.answer().environment())
             : "miss: " + output::EnumWord(result.miss().reason());
}

output::Fields AdviceFields(const AdviceRow& row, double speed_up, const std::string& bound) {
  const v1::Answer& answer = row.result.answer();
  const v1::Candidate& winner = answer.winner();
  const bool has = row.result.has_answer();
  const std::string error = winner.has_error() ? absl::StrFormat("%.1e", winner.error()) : "-";
  using output::Only, output::Value, output::Color;
  return {
      {"tf32Forbidden", "", row.forbid_tf32, Only::kJson},
      {"asked", "", row.asked, Only::kJson},
      {"batch", "BATCH", row.batch(), Only::kCsv},
      {"layout", "LAYOUT", Name(row.problem.layout()), Only::kCsv},
      {"dtype", "DTYPE", Name(row.problem.data_type()), Only::kCsv},
      {"math", "MATH", MathWord(row), Only::kCsv},
      {"median_us", "TIME",
       Figure(6, row.time_us()).Shown(output::FormatMicroseconds(row.time_us())), Only::kCsv},
      {"speedUp", "SPEED-UP", Figure(2, speed_up).In(speed_up > 1 ? Color::kGreen : Color::kNone)},
      {"tflops", "TFLOP/S", Figure(1, row.tflops())},
      {"gbytesPerSecond", "GB/S", Figure(0, row.gbytes())},
      {"bound", "BOUND", bound},
      {"workspace_bytes", "WORKSPACE",
       has ? output::Bytes(winner.workspace_bytes()) : Value("").Shown("-").Right(), Only::kCsv},
      {"error", "ERROR", Value(error).Right(), Only::kCsv},
      {"evidence", "EVIDENCE",
       Value(Word(row.result)).In(has ? calls::EvidenceColor(answer.evidence()) : Color::kRed),
       Only::kCsv},
      {"winner", "WINNER", winner.text(), Only::kCsv},
      {"problem", "", row.problem.ToText()},
      {"result", "", row.result, Only::kJson},
  };
}

std::vector<ProblemRow> ProblemsOf(const std::vector<AdviceRow>& rows) {
  std::vector<ProblemRow> problems;
  for (const AdviceRow& row : rows) {
    if (!row.forbid_tf32) problems.push_back({row.problem, 1, "VARIANT"});
  }
  return problems;
}

// Fills in the results of the rows.
app::ExitCode Ask(app::Context& context, const v1::Constraints& constraints,
                  std::vector<AdviceRow>* rows) {
  for (const bool forbid_tf32 : {false, true}) {
    v1::BatchGetRequest get;
    get.set_environment(context.settings().environment);
    *get.mutable_constraints() = constraints;
    if (forbid_tf32) get.mutable_constraints()->set_forbid_tf32(true);
    std::vector<ProblemRow> problems;
    std::vector<AdviceRow*> asked;
    for (AdviceRow& row : *rows) {
      if (row.forbid_tf32 != forbid_tf32) continue;
      problems.push_back({row.problem, 1, "VARIANT"});
      asked.push_back(&row);
    }
    if (problems.empty()) continue;
    const calls::BatchAnswers answers =
        calls::BatchGetAll(context, get, problems, context.settings().client.timeout);
    if (answers.rows.size() != asked.size()) return app::ExitCode::kUnreachable;
    for (size_t i = 0; i < asked.size(); ++i) asked[i]->result = answers.rows[i].result;
    if (answers.code == app::ExitCode::kUnreachable) return answers.code;
  }
  return app::ExitCode::kDone;
}

class AdviseCommand final : public app::Command {
 public:
  void Register(CLI::App& root) override {
    CLI::App* app = AddVerb(root, "advise",
                            "tune one convolution in other layouts, types and batch sizes too, and "
                            "show them side by side",
                            app::Rows::kYes);
    problem_.RegisterOne(*app);
    constraints_.Register(*app);
    app->add_option("--dtypes", dtypes_, "data types to compare, besides the problem's own")
        ->type_name("T,T")
        ->delimiter(',')
        ->check(CLI::IsMember(InputTypeNames()))
        ->capture_default_str();
    app->add_option("--batches", batches_, "batch sizes to compare, such as 1,8,32")
        ->type_name("N,N")
        ->delimiter(',')
        ->check(CLI::Range(1, 1 << 30));
    budget_.Register(*app);
    const AdviceRow row{*ConvProblem::Parse("fwd,x=1x1x1x1,w=1x1x1x1,f32")};
    app::SayColumns(app, AdviceFields(row, 0, ""));
  }

  absl::StatusOr<app::ExitCode> Run(app::Context& context) override {
    ASSIGN_OR_RETURN(auto rows, ReadRows());
    ASSIGN_OR_RETURN(auto constraints, constraints_.ToProto());
    v1::CreateTuningJobRequest request;
    RETURN_IF_ERROR(budget_.Fill(request.mutable_options()));
    request.set_environment(context.settings().environment);
    request.set_priority(v1::PRIORITY_INTERACTIVE);
    // A variant that cuDNN has nothing for is a row like the others.
    const calls::TuningRun run = calls::RunTuning(context, request, ProblemsOf(rows));
    if (run.cancelled || run.jobs.empty()) return run.code;
    const app::ExitCode code = Ask(context, constraints, &rows);
    if (code == app::ExitCode::kUnreachable) return code;
    std::vector<AdviceRow> probes = MakeProbes(rows);
    if (!probes.empty()) {
      context.Say("probing what the GPU can do at most:");
      if (calls::RunTuning(context, request, ProblemsOf(probes)).cancelled) {
        return app::ExitCode::kFailed;
      }
      Ask(context, {}, &probes);
    }
    Print(context, rows, Ceilings::Of(probes, rows));
    return calls::ExitCodeOf(rows.front().result);
  }

 private:
  absl::StatusOr<std::vector<AdviceRow>> ReadRows() const {
    ASSIGN_OR_RETURN(const ConvProblem problem, problem_.ReadOne());
    std::vector<DataType> types;
    for (const std::string& name : dtypes_) types.push_back(*ParseDataType(name));
    return MakeRows(problem, types, batches_);
  }

  static void Print(app::Context& context, const std::vector<AdviceRow>& rows,
                    const Ceilings& ceilings) {
    const double asked = rows.front().per_second();
    const auto fields_of = [&](const AdviceRow& row) {
      return AdviceFields(row, asked > 0 ? row.per_second() / asked : 0, BoundWord(row, ceilings));
    };
    std::vector<output::Json> tflops;
    for (const auto& [type, most] : ceilings.tflops) {
      tflops.push_back(output::JsonObject(
          {{"dtype", Name(type.first)}, {"tf32Forbidden", type.second}, {"value", most}}));
    }
    context.PrintJson({{"variants", output::JsonRows(rows, fields_of)},
                       {"ceilings", output::JsonObject({{"tflops", tflops},
                                                        {"gbytesPerSecond", ceilings.gbytes}})},
                       {"conclusion", Conclude(rows)}});
    context.PrintRows(rows, fields_of, rows.front());
    if (context.format() != app::Format::kTable) return;
    context.io().out << "\n" << Conclude(rows) << "\n";
    if (ceilings.gbytes > 0) context.io().out << CeilingWords(ceilings) << "\n";
  }

  input::ProblemArgs problem_;
  input::ConstraintArgs constraints_;
  std::vector<std::string> dtypes_ = {"f32", "f16", "bf16"};
  std::vector<int64_t> batches_;
  input::BudgetArgs budget_;
};

}  // namespace

std::unique_ptr<app::Command> NewAdviseCommand() { return std::make_unique<AdviseCommand>(); }

}  // namespace convtune::cli::commands::advise

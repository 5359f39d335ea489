#include <CLI/CLI.hpp>
#include <optional>
#include <ostream>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/cli/advise_bounds.h"
#include "client/cli/advise_ceilings.h"
#include "client/cli/advise_variants.h"
#include "client/cli/advise_words.h"
#include "client/cli/answer_output.h"
#include "client/cli/batch_get.h"
#include "client/cli/budget_args.h"
#include "client/cli/command.h"
#include "client/cli/constraint_args.h"
#include "client/cli/json.h"
#include "client/cli/problem_args.h"
#include "client/cli/table.h"
#include "client/cli/tuning_run.h"
#include "client/cli/units.h"
#include "proto/base/status_macros.h"

namespace convtune {
namespace {

std::string Figure(int digits, double value) {
  return value > 0 ? absl::StrFormat("%.*f", digits, value) : "-";
}

std::string Word(const v1::BatchGetResult& result) {
  return result.has_answer() ? EvidenceWord(result.answer().evidence())
                             : "miss: " + MissWord(result.miss().reason());
}

class AdviseCommand final : public Command {
 public:
  void Register(CLI::App& root) override {
    CLI::App* app = AddVerb(root, "advise",
                            "tune one convolution in other layouts, types and batch sizes too, and "
                            "show them side by side",
                            Rows::kYes);
    problem_.RegisterOne(*app);
    constraints_.Register(*app);
    app->add_option("--dtypes", dtypes_, "data types to compare, besides the problem's own")
        ->type_name("T,T")
        ->capture_default_str();
    app->add_option("--batches", batches_, "batch sizes to compare, such as 1,8,32")
        ->type_name("N,N");
    budget_.Register(*app);
  }

  ExitCode Run(Context& context) override {
    auto rows = MakeRows();
    if (!rows.ok()) return context.Fail(rows.status());
    auto constraints = constraints_.ToProto();
    if (!constraints.ok()) return context.Fail(constraints.status());
    v1::CreateTuningJobRequest request;
    const absl::Status budget = budget_.Fill(request.mutable_options());
    if (!budget.ok()) return context.Fail(budget);
    request.set_environment(context.settings().environment);
    request.set_priority(v1::PRIORITY_INTERACTIVE);
    std::vector<ProblemRow> problems;
    for (const AdviceRow& row : *rows) {
      if (!row.variant.forbid_tf32) problems.push_back({row.variant.problem, 1, "VARIANT"});
    }
    // A variant that cuDNN has nothing for is a row like the others.
    const TuningRun run = RunTuning(context, request, problems);
    if (run.cancelled || run.jobs.empty()) return run.code;
    for (const bool forbid_tf32 : {false, true}) {
      const ExitCode code = Ask(context, *constraints, forbid_tf32, &*rows);
      if (code == ExitCode::kUnreachable) return code;
    }
    const AdviceRow asked = rows->front();
    for (AdviceRow& row : *rows) {
      row.advice = Advise(row.variant, row.result, asked.variant, asked.result);
    }
    const auto ceilings = FindCeilings(context, request, *rows);
    if (!ceilings.ok()) return ExitCode::kFailed;
    for (AdviceRow& row : *rows) {
      const double host_us = row.result.answer().winner().host_us();
      row.bound = FindBound(row.variant, row.advice, host_us, *ceilings);
    }
    Print(context, *rows, *ceilings);
    return ExitCodeOf(asked.result);
  }

 private:
  absl::StatusOr<std::vector<AdviceRow>> MakeRows() const {
    ASSIGN_OR_RETURN(const ConvProblem problem, problem_.ReadOne());
    std::vector<DataType> types;
    for (const std::string& name :
         std::vector<std::string>(absl::StrSplit(dtypes_, ',', absl::SkipEmpty()))) {
      const std::optional<DataType> type = ParseDataType(name);
      if (!type) {
        return absl::InvalidArgumentError(absl::StrCat(
            "--dtypes: must be of ", absl::StrJoin(InputTypeNames(), ", "), ", has '", name, "'"));
      }
      types.push_back(*type);
    }
    std::vector<int64_t> batches;
    for (const std::string& number :
         std::vector<std::string>(absl::StrSplit(batches_, ',', absl::SkipEmpty()))) {
      ASSIGN_OR_RETURN(const int64_t batch, ParseCount("--batches", number, 1, 1 << 30));
      batches.push_back(batch);
    }
    ASSIGN_OR_RETURN(const std::vector<Variant> variants, MakeVariants(problem, types, batches));
    std::vector<AdviceRow> rows;
    for (const Variant& variant : variants) rows.push_back({variant, {}, {}, {}});
    return rows;
  }

  // Fills the results of the rows that are with or without TF32.
  static ExitCode Ask(Context& context, const v1::Constraints& constraints, bool forbid_tf32,
                      std::vector<AdviceRow>* rows) {
    v1::BatchGetRequest get;
    get.set_environment(context.settings().environment);
    *get.mutable_constraints() = constraints;
    if (forbid_tf32) get.mutable_constraints()->set_forbid_tf32(true);
    std::vector<ProblemRow> problems;
    std::vector<AdviceRow*> asked;
    for (AdviceRow& row : *rows) {
      if (row.variant.forbid_tf32 != forbid_tf32) continue;
      problems.push_back({row.variant.problem, 1, "VARIANT"});
      asked.push_back(&row);
    }
    if (problems.empty()) return ExitCode::kDone;
    const BatchAnswers answers =
        BatchGetAll(context, get, problems, context.settings().client.timeout);
    if (answers.rows.size() != asked.size()) return ExitCode::kUnreachable;
    for (size_t i = 0; i < asked.size(); ++i) asked[i]->result = answers.rows[i].result;
    return answers.code;
  }

  // From the rows, from probes of the card and from what else the daemon has
  // measured. Where no row was timed nothing is asked. Fails if it is cancelled.
  static absl::StatusOr<Ceilings> FindCeilings(Context& context,
                                               const v1::CreateTuningJobRequest& request,
                                               const std::vector<AdviceRow>& rows) {
    Ceilings ceilings;
    std::set<std::string> seen;
    std::set<DataType> types;
    for (const AdviceRow& row : rows) {
      Raise(row.variant.problem, row.variant.forbid_tf32, row.advice.time_us, &ceilings);
      seen.insert(row.variant.problem.ToText());
      if (row.advice.time_us > 0) types.insert(row.variant.problem.data_type());
    }
    if (types.empty()) return ceilings;
    context.Say("probing what the card can do at most:");
    RETURN_IF_ERROR(RaiseByProbes(context, request, types, &ceilings));
    RaiseByStored(context, seen, &ceilings);
    return ceilings;
  }

  static std::string CeilingsJson(const Ceilings& ceilings) {
    const auto best = [](JsonObject object, const BestSeen& seen) {
      return object.Add("value", seen.value).Add("probed", seen.probed).Take();
    };
    std::vector<std::string> tflops;
    for (const auto& [type, most] : ceilings.tflops) {
      tflops.push_back(best(JsonObject()
                                .Add("dtype", std::string(Name(type.first)))
                                .Add("tf32Forbidden", type.second),
                            most));
    }
    return JsonObject()
        .AddRaw("tflops", JsonArray(tflops))
        .AddRaw("gbytesPerSecond", best(JsonObject(), ceilings.gbytes))
        .Take();
  }

  static void Print(Context& context, const std::vector<AdviceRow>& rows,
                    const Ceilings& ceilings) {
    std::ostream& out = context.io().out;
    if (context.format() == Format::kJson) {
      std::vector<std::string> elements;
      for (const AdviceRow& row : rows) {
        elements.push_back(JsonObject()
                               .Add("problem", row.variant.problem.ToText())
                               .Add("tf32Forbidden", row.variant.forbid_tf32)
                               .Add("asked", row.variant.asked)
                               .Add("speedUp", row.advice.speed_up)
                               .Add("tflops", row.advice.tflops)
                               .Add("gbytesPerSecond", row.advice.gbytes)
                               .Add("bound", BoundWord(row.bound))
                               .Add("result", row.result)
                               .Take());
      }
      out << JsonObject()
                 .AddRaw("variants", JsonArray(elements))
                 .AddRaw("ceilings", CeilingsJson(ceilings))
                 .Add("conclusion", Conclude(rows))
                 .Take()
          << "\n";
      return;
    }
    Table table({{"BATCH", Align::kRight},
                 {"LAYOUT"},
                 {"DTYPE"},
                 {"MATH"},
                 {"TIME", Align::kRight},
                 {"SPEED-UP", Align::kRight},
                 {"TFLOP/S", Align::kRight},
                 {"GB/S", Align::kRight},
                 {"BOUND"},
                 {"WORKSPACE", Align::kRight},
                 {"ERROR", Align::kRight},
                 {"EVIDENCE"},
                 {"WINNER"}});
    std::string csv = CsvLine({"batch", "layout", "dtype", "math", "median_us", "speed_up",
                               "tflops", "gbytes_per_second", "bound", "workspace_bytes", "error",
                               "evidence", "winner", "problem"});
    for (const AdviceRow& row : rows) {
      const v1::Candidate& winner = row.result.answer().winner();
      const bool has = row.result.has_answer();
      const std::string layout(Name(row.variant.problem.layout()));
      const std::string dtype(Name(row.variant.problem.data_type()));
      const std::string error = winner.has_error() ? absl::StrFormat("%.1e", winner.error()) : "-";
      table.Add(
          {absl::StrCat(row.variant.batch),
           layout,
           dtype,
           MathWord(row.variant),
           FormatMicroseconds(row.advice.time_us),
           {Figure(2, row.advice.speed_up), row.advice.speed_up > 1 ? Color::kGreen : Color::kNone},
           Figure(1, row.advice.tflops),
           Figure(0, row.advice.gbytes),
           BoundWord(row.bound),
           has ? FormatBytes(winner.workspace_bytes()) : "-",
           error,
           {Word(row.result), has ? EvidenceColor(row.result.answer().evidence()) : Color::kRed},
           winner.text()});
      csv += CsvLine({absl::StrCat(row.variant.batch), layout, dtype, MathWord(row.variant),
                      Figure(6, row.advice.time_us), Figure(6, row.advice.speed_up),
                      Figure(6, row.advice.tflops), Figure(6, row.advice.gbytes),
                      BoundWord(row.bound), has ? absl::StrCat(winner.workspace_bytes()) : "",
                      error, Word(row.result), winner.text(), row.variant.problem.ToText()});
    }
    if (context.format() == Format::kCsv) {
      out << csv;
    } else {
      out << table.Render(context.table_width(), context.out_color()) << "\n"
          << Conclude(rows) << "\n";
      if (ceilings.gbytes.count > 0) out << CeilingWords(ceilings) << "\n";
    }
  }

  ProblemArgs problem_;
  ConstraintArgs constraints_;
  std::string dtypes_ = "f32,f16,bf16";
  std::string batches_;
  BudgetArgs budget_;
};

}  // namespace

std::unique_ptr<Command> NewAdviseCommand() { return std::make_unique<AdviseCommand>(); }

}  // namespace convtune

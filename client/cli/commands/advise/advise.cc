#include <CLI/CLI.hpp>
#include <optional>
#include <ostream>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/cli/app/command.h"
#include "client/cli/calls/answer_output.h"
#include "client/cli/calls/batch_get.h"
#include "client/cli/calls/tuning_run.h"
#include "client/cli/commands/advise/advice.h"
#include "client/cli/input/budget_args.h"
#include "client/cli/input/constraint_args.h"
#include "client/cli/input/problem_args.h"
#include "client/cli/output/json.h"
#include "client/cli/output/table.h"
#include "client/cli/output/units.h"
#include "proto/base/status_macros.h"

namespace convtune::cli {
namespace {

constexpr size_t kMostStored = 10'000;
constexpr int kPageSize = 1000;

std::string Figure(int digits, double value) {
  return value > 0 ? absl::StrFormat("%.*f", digits, value) : "-";
}

std::string Word(const v1::BatchGetResult& result) {
  return result.has_answer() ? EvidenceWord(result.answer().evidence())
                             : "miss: " + MissWord(result.miss().reason());
}

std::vector<ProblemRow> ProblemsOf(const std::vector<AdviceRow>& rows) {
  std::vector<ProblemRow> problems;
  for (const AdviceRow& row : rows) {
    if (!row.forbid_tf32) problems.push_back({row.problem, 1, "VARIANT"});
  }
  return problems;
}

// Fills in the results and the figures of the rows.
ExitCode Ask(Context& context, const v1::Constraints& constraints, std::vector<AdviceRow>* rows) {
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
    const BatchAnswers answers =
        BatchGetAll(context, get, problems, context.settings().client.timeout);
    if (answers.rows.size() != asked.size()) return ExitCode::kUnreachable;
    for (size_t i = 0; i < asked.size(); ++i) asked[i]->result = answers.rows[i].result;
    if (answers.code == ExitCode::kUnreachable) return answers.code;
  }
  TakeFigures(rows);
  return ExitCode::kDone;
}

// At most kMostStored measured problems of the environment, but for those whose
// text is in `but`. A list that the daemon does not end is as long as it is.
std::vector<AdviceRow> StoredRows(Context& context, const std::set<std::string>& but) {
  std::vector<AdviceRow> rows;
  const auto client = context.Connect();
  v1::ListTuningsRequest request;
  request.set_environment(context.settings().environment);
  request.set_page_size(kPageSize);
  do {
    const auto page = (*client)->ListTunings(request);
    if (!page.ok()) break;
    for (const v1::Tuning& tuning : page->tunings()) {
      const bool measured = tuning.evidence() >= v1::EVIDENCE_INCOMPLETE;
      if (!measured || but.count(tuning.problem_text()) > 0) continue;
      auto problem = ConvProblem::Parse(tuning.problem_text());
      if (problem.ok()) rows.push_back({*std::move(problem)});
    }
    request.set_page_token(page->next_page_token());
  } while (!request.page_token().empty() && rows.size() < kMostStored);
  return rows;
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
    auto rows = ReadRows();
    if (!rows.ok()) return context.Fail(rows.status());
    auto constraints = constraints_.ToProto();
    if (!constraints.ok()) return context.Fail(constraints.status());
    v1::CreateTuningJobRequest request;
    const absl::Status budget = budget_.Fill(request.mutable_options());
    if (!budget.ok()) return context.Fail(budget);
    request.set_environment(context.settings().environment);
    request.set_priority(v1::PRIORITY_INTERACTIVE);
    // A variant that cuDNN has nothing for is a row like the others.
    const TuningRun run = RunTuning(context, request, ProblemsOf(*rows));
    if (run.cancelled || run.jobs.empty()) return run.code;
    const ExitCode code = Ask(context, *constraints, &*rows);
    if (code == ExitCode::kUnreachable) return code;
    Compare(&*rows);
    const auto ceilings = FindCeilings(context, request, *rows);
    if (!ceilings) return ExitCode::kFailed;
    Print(context, *rows, *ceilings);
    return ExitCodeOf(rows->front().result);
  }

 private:
  absl::StatusOr<std::vector<AdviceRow>> ReadRows() const {
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
    return MakeRows(problem, types, batches);
  }

  // From the rows, from probes of the GPU and from what else the daemon has
  // measured. Where no row was timed nothing is asked. Nothing if the user or
  // somebody else cancelled the probes.
  static std::optional<Ceilings> FindCeilings(Context& context,
                                              const v1::CreateTuningJobRequest& request,
                                              const std::vector<AdviceRow>& rows) {
    Ceilings ceilings;
    std::set<std::string> seen;
    std::set<DataType> types;
    for (const AdviceRow& row : rows) {
      seen.insert(row.problem.ToText());
      if (row.time_us > 0) types.insert(row.problem.data_type());
    }
    ceilings.Add(rows);
    if (types.empty()) return ceilings;
    context.Say("probing what the GPU can do at most:");
    std::vector<AdviceRow> probes = MakeProbes(types);
    if (RunTuning(context, request, ProblemsOf(probes)).cancelled) return std::nullopt;
    Ask(context, {}, &probes);
    ceilings.Add(probes);
    std::vector<AdviceRow> stored = StoredRows(context, seen);
    Ask(context, {}, &stored);
    ceilings.Add(stored);
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
                               .Add("problem", row.problem.ToText())
                               .Add("tf32Forbidden", row.forbid_tf32)
                               .Add("asked", row.asked)
                               .Add("speedUp", row.speed_up)
                               .Add("tflops", row.tflops)
                               .Add("gbytesPerSecond", row.gbytes)
                               .Add("bound", BoundWord(row, ceilings))
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
      const std::string layout(Name(row.problem.layout()));
      const std::string dtype(Name(row.problem.data_type()));
      const std::string error = winner.has_error() ? absl::StrFormat("%.1e", winner.error()) : "-";
      table.Add(
          {absl::StrCat(row.batch()),
           layout,
           dtype,
           MathWord(row),
           FormatMicroseconds(row.time_us),
           {Figure(2, row.speed_up), row.speed_up > 1 ? Color::kGreen : Color::kNone},
           Figure(1, row.tflops),
           Figure(0, row.gbytes),
           BoundWord(row, ceilings),
           has ? FormatBytes(winner.workspace_bytes()) : "-",
           error,
           {Word(row.result), has ? EvidenceColor(row.result.answer().evidence()) : Color::kRed},
           winner.text()});
      csv +=
          CsvLine({absl::StrCat(row.batch()), layout, dtype, MathWord(row), Figure(6, row.time_us),
                   Figure(6, row.speed_up), Figure(6, row.tflops), Figure(6, row.gbytes),
                   BoundWord(row, ceilings), has ? absl::StrCat(winner.workspace_bytes()) : "",
                   error, Word(row.result), winner.text(), row.problem.ToText()});
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

}  // namespace convtune::cli

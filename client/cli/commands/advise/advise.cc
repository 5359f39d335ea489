#include "client/cli/commands/advise/advise.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <ostream>
#include <set>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/calls/answers.h"
#include "client/cli/calls/tuning_run.h"
#include "client/cli/input/options.h"
#include "client/cli/input/problem_args.h"
#include "client/cli/output/fields.h"
#include "client/cli/output/units.h"
#include "proto/base/status_macros.h"
#include "proto/convert/problem_list.h"

namespace convtune::cli::commands::advise {
namespace {

constexpr char kArithmetic[] = "fwd,x=32x2048x32x32,w=2048x2048x1x1,";

// Adds the problem, unless it is there, and for f32 once more without TF32.
void AddRow(const ConvProblem& problem, bool asked, Probe probe, std::vector<AdviceRow>* rows) {
  for (const AdviceRow& row : *rows) {
    if (row.problem == problem) return;
  }
  rows->push_back({problem, false, asked, probe});
  if (problem.data_type() == DataType::kF32) rows->push_back({problem, true, false, probe});
}

std::string EvidenceText(const AdviceRow& row) {
  const v1::Answer& answer = row.result.answer();
  return calls::EvidenceWord(answer.evidence(), answer.environment());
}
bool IsMeasured(const AdviceRow& row) {
  return row.result.answer().evidence() >= v1::EVIDENCE_MEASURED;
}

// Bits of the exponent and of the significand (with the implied one) that an
// input keeps.
std::pair<int, int> BitsOf(const AdviceRow& row) {
  static const std::map<DataType, std::pair<int, int>> kBits = {
      {DataType::kF64, {11, 53}}, {DataType::kF32, {8, 11}}, {DataType::kF16, {5, 11}},
      {DataType::kBF16, {8, 8}},  {DataType::kI8, {0, 7}},   {DataType::kI32, {0, 31}},
      {DataType::kE4M3, {4, 4}},  {DataType::kE5M2, {5, 3}},
  };
  return row.forbid_tf32 ? std::pair(8, 24) : kBits.at(row.problem.data_type());
}

bool IsNarrower(const AdviceRow& row, const AdviceRow& asked) {
  return BitsOf(row).first < BitsOf(asked).first || BitsOf(row).second < BitsOf(asked).second;
}

std::string ErrorWord(const AdviceRow& row) {
  const v1::Candidate& winner = row.result.answer().winner();
  return winner.has_error() ? absl::StrFormat("%.1e", winner.error()) : "not known";
}

// "tf32", "no tf32"; empty but for f32.
std::string MathWord(const AdviceRow& row) {
  if (row.problem.data_type() != DataType::kF32) return "";
  return row.forbid_tf32 ? "no tf32" : "tf32";
}

std::string NameOf(const AdviceRow& row) {
  const std::string math = MathWord(row);
  return absl::StrCat("batch ", row.batch(), ", ", std::string(Name(row.problem.layout())), ", ",
                      std::string(Name(row.problem.data_type())),
                      math.empty() ? "" : " (" + math + ")");
}

// A number of a candidate. JSON has it unrounded. Where the candidate was not timed, CSV has an
// empty cell and the table "-".
output::Value Figure(int digits, double value) {
  output::Value figure = value;
  figure.json = figure.written;
  figure.written = value > 0 ? absl::StrFormat("%.6f", value) : "";
  return figure.Shown(value > 0 ? absl::StrFormat("%.*f", digits, value) : "-");
}

std::string Word(const AdviceRow& row) {
  return row.result.has_answer() ? EvidenceText(row)
                                 : "miss: " + output::EnumWord(row.result.miss().reason());
}

output::Fields AdviceFields(const AdviceRow& row, double speed_up, const std::string& bound) {
  const v1::Answer& answer = row.result.answer();
  const v1::Candidate& winner = answer.winner();
  const bool has = row.result.has_answer();
  const std::string error = winner.has_error() ? ErrorWord(row) : "";
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
      {"error", "ERROR", Value(error).Shown(error.empty() ? "-" : error).Right(), Only::kCsv},
      {"evidence", "EVIDENCE",
       Value(Word(row)).In(has ? calls::EvidenceColor(answer.evidence()) : Color::kRed),
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
    const calls::BatchAnswers answers = calls::BatchGetAll(context, get, problems);
    if (answers.rows.size() != asked.size()) return answers.code;  // why has been said
    for (size_t i = 0; i < asked.size(); ++i) asked[i]->result = answers.rows[i].result;
  }
  return app::ExitCode::kDone;
}

class AdviseCommand final : public app::Command {
 public:
  void Register(CLI::App& root) override {
    const AdviceRow row{*ConvProblem::Parse("fwd,x=1x1x1x1,w=1x1x1x1,f32")};
    CLI::App* app = AddVerb(root, "advise",
                            "tune one convolution in other layouts, types and batch sizes too, and "
                            "show them side by side",
                            AdviceFields(row, 0, ""));
    problem_.RegisterOne(*app);
    input::AddConstraints(*app, &constraints_);
    app->add_option("--dtypes", dtypes_, "data types to compare, besides the problem's own")
        ->type_name("T,T")
        ->delimiter(',')
        ->check(CLI::IsMember(InputTypeNames()))
        ->capture_default_str();
    app->add_option("--batches", batches_, "batch sizes to compare, such as 1,8,32")
        ->type_name("N,N")
        ->delimiter(',')
        ->check(CLI::Range(1, 1 << 30));
    input::AddBudget(*app, request_.mutable_options());
  }

  absl::StatusOr<app::ExitCode> Run(app::Context& context) override {
    ASSIGN_OR_RETURN(auto rows, ReadRows());
    // A variant that cuDNN has nothing for is a row like the others.
    const calls::TuningRun run = calls::RunTuning(context, request_, ProblemsOf(rows));
    if (run.cancelled || run.jobs.empty()) return run.code;
    const app::ExitCode code = Ask(context, constraints_, &rows);
    if (code != app::ExitCode::kDone) return code;
    std::vector<AdviceRow> probes = MakeProbes(rows);
    if (!probes.empty()) {
      context.Say("probing what the GPU can do at most:");
      if (calls::RunTuning(context, request_, ProblemsOf(probes)).cancelled) {
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
      tflops.push_back(output::JsonRow(
          {{"dtype", Name(type.first)}, {"tf32Forbidden", type.second}, {"value", most}}));
    }
    context.PrintJson(
        {{"variants", output::JsonRows(rows, fields_of)},
         {"ceilings", output::JsonRow({{"tflops", tflops}, {"gbytesPerSecond", ceilings.gbytes}})},
         {"conclusion", Conclude(rows)}});
    context.PrintRows(rows, fields_of, rows.front());
    if (context.format() != app::Format::kTable) return;
    context.io().out << "\n" << Conclude(rows) << "\n";
    if (ceilings.gbytes > 0) context.io().out << CeilingWords(ceilings) << "\n";
  }

  input::ProblemArgs problem_;
  v1::Constraints constraints_;
  std::vector<std::string> dtypes_ = {"f32", "f16", "bf16"};
  std::vector<int64_t> batches_;
  v1::CreateTuningJobRequest request_;
};

}  // namespace

// 1e6 per microsecond is 1e12 per second.
double AdviceRow::tflops() const {
  return time_us() > 0 ? EstimatedFlops(problem) / time_us() / 1e6 : 0;
}

double AdviceRow::gbytes() const {
  return time_us() > 0 ? static_cast<double>(problem.TensorBytes()) / time_us() / 1e3 : 0;
}

double AdviceRow::per_second() const {
  return time_us() > 0 ? static_cast<double>(batch()) / time_us() * 1e6 : 0;
}

absl::StatusOr<std::vector<AdviceRow>> MakeRows(const ConvProblem& problem,
                                                const std::vector<DataType>& types,
                                                const std::vector<int64_t>& batches) {
  if (problem.layout() == TensorLayout::kStrided) {
    return absl::InvalidArgumentError("PROBLEM: must be nchw or nhwc, without strides of its own");
  }
  std::vector<DataType> all = {problem.data_type()};
  all.insert(all.end(), types.begin(), types.end());
  const std::vector<int64_t> own = {problem.x_dims()[0]};
  std::vector<AdviceRow> rows;
  AddRow(problem, true, Probe::kNone, &rows);
  for (const int64_t batch : batches.empty() ? own : batches) {
    for (const TensorLayout layout : {TensorLayout::kNchw, TensorLayout::kNhwc}) {
      for (const DataType type : all) {
        const auto variant = calls::Vary(problem, {std::nullopt, type, layout, {batch}});
        if (variant) AddRow(*variant, false, Probe::kNone, &rows);
      }
    }
  }
  return rows;
}

std::vector<AdviceRow> MakeProbes(const std::vector<AdviceRow>& rows) {
  std::set<DataType> types;
  for (const AdviceRow& row : rows) {
    if (row.time_us() > 0) types.insert(row.problem.data_type());
  }
  std::vector<AdviceRow> probes;
  if (types.empty()) return probes;
  for (const DataType type : types) {
    const bool wide = type == DataType::kF32 || type == DataType::kF64;
    for (const std::string layout : {"nhwc,", "nchw,"}) {
      if (layout == "nchw," && !wide) continue;
      const auto problem =
          ConvProblem::Parse(absl::StrCat(kArithmetic, layout, std::string(Name(type))));
      if (problem.ok()) AddRow(*problem, false, Probe::kCompute, &probes);
    }
  }
  for (const char* text :
       {"fwd,x=128x64x112x112,w=64x64x1x1,nhwc,f16", "fwd,x=128x32x112x112,w=32x32x1x1,nhwc,f32"}) {
    AddRow(*ConvProblem::Parse(text), false, Probe::kMemory, &probes);
  }
  return probes;
}

Ceilings Ceilings::Of(const std::vector<AdviceRow>& probes, const std::vector<AdviceRow>& rows) {
  Ceilings most;
  for (const AdviceRow& probe : probes) {
    if (!(probe.time_us() > 0)) continue;
    double& ceiling = probe.probe == Probe::kMemory
                          ? most.gbytes
                          : most.tflops[{probe.problem.data_type(), probe.forbid_tf32}];
    ceiling = std::max(ceiling, probe.probe == Probe::kMemory ? probe.gbytes() : probe.tflops());
  }
  for (const AdviceRow& row : rows) {
    if (most.gbytes > 0) most.gbytes = std::max(most.gbytes, row.gbytes());
    const auto compute = most.tflops.find({row.problem.data_type(), row.forbid_tf32});
    if (compute != most.tflops.end()) compute->second = std::max(compute->second, row.tflops());
  }
  return most;
}

std::string BoundWord(const AdviceRow& row, const Ceilings& ceilings) {
  if (!(row.time_us() > 0)) return "-";
  if (row.result.answer().winner().host_us() >= row.time_us()) return "launch";
  const auto most = ceilings.tflops.find({row.problem.data_type(), row.forbid_tf32});
  if (most == ceilings.tflops.end() || !(ceilings.gbytes > 0)) return "-";
  const double compute = row.tflops() / most->second;
  const double memory = row.gbytes() / ceilings.gbytes;
  return compute >= memory ? absl::StrFormat("compute %.0f%%", 100 * compute)
                           : absl::StrFormat("memory %.0f%%", 100 * memory);
}

std::string CeilingWords(const Ceilings& ceilings) {
  std::string words = absl::StrFormat(
      "BOUND: the nearest to the GPU's ceilings, measured by probes; memory %.0f GB/s",
      ceilings.gbytes);
  for (const auto& [type, most] : ceilings.tflops) {
    absl::StrAppendFormat(&words, "; %s%s %.1f TFLOP/s", std::string(Name(type.first)),
                          type.second ? " without tf32" : "", most);
  }
  return words + ".";
}

std::string Conclude(const std::vector<AdviceRow>& rows) {
  const AdviceRow& asked = rows.front();
  const AdviceRow& fastest = *std::max_element(
      rows.begin(), rows.end(),
      [](const AdviceRow& a, const AdviceRow& b) { return a.per_second() < b.per_second(); });
  if (!(asked.time_us() > 0)) {
    return "Nothing was timed, so nothing is said of speed: that needs a GPU.";
  }
  // The fastest of those that are measured, or of all.
  const auto rank = [](const AdviceRow& row) {
    return std::tuple(row.time_us() > 0 && IsMeasured(row), row.per_second());
  };
  const AdviceRow& best =
      *std::max_element(rows.begin(), rows.end(),
                        [&](const AdviceRow& a, const AdviceRow& b) { return rank(a) < rank(b); });
  std::string words;
  if (best.asked) {
    words = "As it was asked for, it is the fastest of these.";
  } else {
    words = absl::StrFormat("The most per image: %s, %.2f times as fast as asked for.",
                            NameOf(best), best.per_second() / asked.per_second());
    if (IsNarrower(best, asked)) {
      absl::StrAppend(&words, " Its type is narrower: the numerical error is ", ErrorWord(best),
                      ", as asked for ", ErrorWord(asked), ".");
    }
  }
  if (!IsMeasured(best)) {
    absl::StrAppend(&words, " No recommendation: its evidence is ", EvidenceText(best), " only.");
  } else if (!IsMeasured(asked)) {
    absl::StrAppend(&words, " How much faster is not certain: what was asked for has ",
                    EvidenceText(asked), " evidence only.");
  }
  if (&fastest != &best) {
    absl::StrAppend(&words, " Faster, but with ", EvidenceText(fastest),
                    " evidence only: ", NameOf(fastest), ".");
  }
  return words;
}

std::unique_ptr<app::Command> NewAdviseCommand() { return std::make_unique<AdviseCommand>(); }

}  // namespace convtune::cli::commands::advise

#include "client/cli/input/problem_args.h"

#include <CLI/CLI.hpp>
#include <limits>
#include <sstream>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/cli/input/onnx_problems.h"
#include "client/cli/output/units.h"
#include "proto/base/status_macros.h"

namespace convtune::cli {
namespace {

// "argument 2:1" is the only line of argument 2.
std::string ArgumentSource(const std::string& source) {
  return source.substr(0, source.rfind(':'));
}

ProblemList ReadArgument(const std::string& text, size_t number,
                         const ProblemOverrides& overrides) {
  if (absl::StripAsciiWhitespace(text).empty()) {
    return {{}, {{absl::StrCat("argument ", number), "must be a problem, is empty"}}, {}};
  }
  std::istringstream in(text);
  ProblemList list = ReadProblemList(in, absl::StrCat("argument ", number), overrides);
  for (ProblemRow& row : list.rows) row.source = ArgumentSource(row.source);
  for (ProblemRowError& error : list.errors) error.source = ArgumentSource(error.source);
  return list;
}

absl::Status AtFile(std::string_view option, const absl::Status& status) {
  return absl::InvalidArgumentError(
      absl::StrCat(std::string(option), ": ", std::string(status.message())));
}

// "3x3" as "3" if all dimensions agree.
std::string Spread(const std::string& value) {
  const std::vector<std::string> parts = absl::StrSplit(value, 'x');
  for (const std::string& part : parts) {
    if (part != parts[0]) return value;
  }
  return parts[0];
}

}  // namespace

void ProblemArgs::RegisterOverrides(CLI::App& app) {
  const std::string group = "Instead of what the problems say";
  app.add_option("--op", op_, "operation")->check(CLI::IsMember(OperationNames()))->group(group);
  app.add_option("--dtype", dtype_, "data type")
      ->check(CLI::IsMember(InputTypeNames()))
      ->group(group);
  app.add_option("--layout", layout_, "memory order")
      ->check(CLI::IsMember({"nchw", "nhwc"}))
      ->group(group);
  app.add_option("--batch", batch_, "batch size")->type_name("N")->group(group);
}

void ProblemArgs::Register(CLI::App& app) {
  app.add_option("problems", problems_, "problems in the text form")->type_name("PROBLEM");
  app.add_option("--file", files_,
                 "list of problems (text, CSV, JSON lines or an ONNX model); - is stdin")
      ->type_name("FILE")
      ->allow_extra_args(false);
  RegisterOverrides(app);
}

void ProblemArgs::RegisterFiles(CLI::App& app) {
  file_option_ = "FILE";
  app.add_option("FILE", files_,
                 "lists of problems (text, CSV, JSON lines, ONNX models); - is stdin")
      ->type_name("")
      ->required();
  RegisterOverrides(app);
}

void ProblemArgs::RegisterOne(CLI::App& app) {
  app.add_option("problem", problem_, "problem in the text form")->type_name("PROBLEM")->required();
  RegisterOverrides(app);
}

absl::StatusOr<ProblemOverrides> ProblemArgs::Overrides() const {
  ProblemOverrides overrides;
  if (op_) overrides.operation = ParseOperation(*op_);
  if (dtype_) overrides.data_type = ParseDataType(*dtype_);
  if (layout_) {
    overrides.layout = *layout_ == "nhwc" ? TensorLayout::kNhwc : TensorLayout::kNchw;
  }
  if (batch_) {
    ASSIGN_OR_RETURN(overrides.batch,
                     ParseCount("--batch", *batch_, 1, std::numeric_limits<int32_t>::max()));
  }
  return overrides;
}

absl::StatusOr<ProblemBatch> ProblemArgs::Read(Context& context) const {
  if (problems_.empty() && files_.empty()) {
    return absl::InvalidArgumentError("PROBLEM: at least one, or --file, must be given");
  }
  ASSIGN_OR_RETURN(const ProblemOverrides overrides, Overrides());
  ProblemBatch batch;
  const auto take = [&](ProblemList list) {
    for (const std::string& notice : list.notices) context.Say(notice);
    for (ProblemRowError& error : list.errors) {
      context.SayError(absl::StrCat(error.source, ": ", error.message));
      batch.errors.push_back(std::move(error));
      batch.code = ExitCode::kUsage;
    }
    for (ProblemRow& row : list.rows) batch.rows.push_back(std::move(row));
  };
  for (size_t i = 0; i < problems_.size(); ++i) {
    take(ReadArgument(problems_[i], i + 1, overrides));
  }
  for (const std::string& file : files_) {
    if (file == "-") {
      take(ReadProblemList(context.io().in, "stdin", overrides));
      continue;
    }
    if (IsOnnxFile(file)) {
      const auto text = OnnxProblems(file, overrides.batch);
      if (!text.ok()) return AtFile(file_option_, text.status());
      std::istringstream in(*text);
      take(ReadProblemList(in, file, overrides));
      continue;
    }
    auto list = ReadProblemListFile(file, overrides);
    if (!list.ok()) return AtFile(file_option_, list.status());
    take(*std::move(list));
  }
  return batch;
}

absl::StatusOr<ConvProblem> ProblemArgs::ReadOne() const {
  ASSIGN_OR_RETURN(const ProblemOverrides overrides, Overrides());
  const ProblemList list = ReadArgument(problem_, 1, overrides);
  if (!list.errors.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("PROBLEM: ", list.errors[0].message));
  }
  if (list.rows.size() != 1) return absl::InvalidArgumentError("PROBLEM: must be one problem");
  return list.rows[0].problem;
}

std::string ShortProblem(const std::string& text) {
  const auto problem = ConvProblem::Parse(text);
  if (!problem.ok()) return text;
  std::vector<std::string> kept;
  for (const std::string& token : std::vector<std::string>(absl::StrSplit(text, ','))) {
    const std::vector<std::string> parts = absl::StrSplit(token, absl::MaxSplits('=', 1));
    const bool spreads =
        parts.size() == 2 && (parts[0] == "pad" || parts[0] == "stride" || parts[0] == "dilation");
    const std::string shorter = spreads ? absl::StrCat(parts[0], "=", Spread(parts[1])) : token;
    kept.push_back(shorter);
  }
  // A token can go if what is left is still read as the same problem. The
  // layout and the type stay: people look for them.
  for (size_t i = kept.size(); i-- > 1;) {
    if (kept[i].find('=') == std::string::npos) continue;
    std::vector<std::string> fewer = kept;
    fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(i));
    const auto same = ConvProblem::Parse(absl::StrJoin(fewer, ","));
    if (same.ok() && *same == *problem) kept = std::move(fewer);
  }
  const std::string result = absl::StrJoin(kept, ",");
  const auto same = ConvProblem::Parse(result);
  return same.ok() && *same == *problem ? result : text;
}

}  // namespace convtune::cli

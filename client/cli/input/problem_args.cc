#include "client/cli/input/problem_args.h"

#include <unistd.h>
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sstream>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "proto/base/child_program.h"
#include "proto/base/errors.h"
#include "proto/base/status_macros.h"
#include "proto/convert/sizes.h"

namespace convtune::cli::input {
namespace {

constexpr char kHowTo[] =
    "pip install './client/python[onnx]' in a checkout of convtune, or name its interpreter with "
    "CONVTUNE_PYTHON";

// The exit code of `python -m convtune` for usage and models.
constexpr int kRefused = 2;

// The output of `python3 -m convtune problems PATH OPTIONS`: a list in the text
// form, empty if the model has no convolution that can be tuned. Its notices and
// errors go to stderr. The interpreter is $CONVTUNE_PYTHON, else python3.
// INVALID_ARGUMENT if the file is not there; FAILED_PRECONDITION if there is no such interpreter,
// and INVALID_ARGUMENT if the package is not there or refuses the model: both say how to get it.
// Errors begin with the path.
absl::StatusOr<std::string> OnnxProblems(const std::string& path,
                                         const std::vector<std::string>& options) {
  if (access(path.c_str(), R_OK) != 0) {
    return InvalidArgument(path, ": cannot be read: ", std::strerror(errno));
  }
  const std::string python = PythonInterpreter();
  // Behind "./" the name of a file that begins with "-" is no option of the Python program.
  std::vector<std::string> words = {python, "-m", "convtune", "problems",
                                    path[0] == '/' ? path : "./" + path};
  words.insert(words.end(), options.begin(), options.end());
  auto ran = RunToEnd(words, {}, ChildErrors::kOurs);
  if (!ran.ok()) {
    return FailedPrecondition(path, ": an ONNX model is read by the Python package, but ",
                              ran.status().message(), ": ", kHowTo);
  }
  if (ran->exit_code != 0) {
    // It ends with kRefused where it has read the model and says why it does not take it.
    const bool refused = ran->exit_code == kRefused;
    return InvalidArgument(
        path, ": `", python,
        " -m convtune problems` could not read the model (what it said stands above)",
        refused ? "" : "; if the package is missing: ", refused ? "" : kHowTo);
  }
  return std::move(ran->text);
}

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

// Another spelling of a data type in the text form's word; else as it is.
std::string AsDataType(const std::string& text) {
  const std::optional<DataType> type = ParseLooseDataType(text);
  return type ? std::string(Name(*type)) : text;
}

// Another spelling of a layout in the text form's word; else as it is.
std::string AsLayout(const std::string& text) {
  const std::optional<TensorLayout> layout = ParseLooseLayout(text);
  return layout ? std::string(Name(*layout)) : text;
}

}  // namespace

void ProblemArgs::RegisterOverrides(CLI::App& app) {
  const std::string group = "Instead of what the problems say";
  app.add_option("--op", op_, "operation")->check(CLI::IsMember(OperationNames()))->group(group);
  app.add_option("--dtype", dtype_, "data type; also fp16, half, bfloat16 and the like")
      ->transform(AsDataType)
      ->check(CLI::IsMember(InputTypeNames()))
      ->group(group);
  app.add_option("--layout", layout_, "memory order; also ncdhw and ndhwc")
      ->transform(AsLayout)
      ->check(CLI::IsMember({"nchw", "nhwc"}))
      ->group(group);
  app.add_option("--batch", batch_, "batch sizes, such as 8 or 1,8,32 or 8..64/8")
      ->type_name("N")
      ->group(group);
}

void ProblemArgs::RegisterModelOptions(CLI::App& app) {
  const std::string group = "ONNX models";
  app.add_option("--dim", dims_,
                 "sizes of a symbolic dimension, such as height=224 or height=224..512/32; names "
                 "with commas between have the same size; INPUT:2=N: of one without a name")
      ->type_name("NAME=N")
      ->allow_extra_args(false)
      ->group(group);
  app.add_option("--runtime", runtime_,
                 "runtime of the model, which decides what is fused with a convolution (default: "
                 "onnxruntime)")
      ->check(
          CLI::IsMember({"plain", "onnxruntime", "onnxruntime-fuse-bias", "torchscript", "fused"}))
      ->group(group);
}

void ProblemArgs::Register(CLI::App& app) {
  app.add_option("problems", problems_, "problems in the text form")->type_name("PROBLEM");
  app.add_option("--file", files_,
                 "list of problems (text, CSV, JSON lines or an ONNX model); - is stdin")
      ->type_name("FILE")
      ->allow_extra_args(false);
  RegisterOverrides(app);
  RegisterModelOptions(app);
}

CLI::Option* ProblemArgs::RegisterFiles(CLI::App& app) {
  CLI::Option* const files =
      app.add_option("FILE", files_,
                     "lists of problems (text, CSV, JSON lines, ONNX models); - is stdin")
          ->type_name("");
  RegisterOverrides(app);
  RegisterModelOptions(app);
  return files;
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
    auto batches = ParseSizes(*batch_);
    if (!batches.ok()) {
      return InvalidArgument("--batch: ", batches.status().message());
    }
    overrides.batches = *std::move(batches);
    if (*std::min_element(overrides.batches.begin(), overrides.batches.end()) < 1) {
      return absl::InvalidArgumentError("--batch: must be from 1 to 2^31-1, is 0");
    }
  }
  return overrides;
}

absl::StatusOr<ProblemList> ProblemArgs::ReadModel(const std::string& file,
                                                   const ProblemOverrides& overrides) const {
  std::vector<std::string> options;
  const auto add = [&](const char* option, const std::string& value) {
    options.insert(options.end(), {option, value});
  };
  if (batch_) add("--batch", *batch_);
  for (const std::string& dim : dims_) add("--dim", dim);
  if (runtime_) add("--runtime", *runtime_);
  // Gradients have nothing fused with them.
  if (op_ && *op_ != "fwd" && !runtime_) add("--runtime", "plain");
  // Both decide what a runtime fuses.
  if (dtype_) add("--dtype", *dtype_);
  if (layout_) add("--layout", *layout_);
  ASSIGN_OR_RETURN(const std::string text, OnnxProblems(file, options));
  if (absl::StripAsciiWhitespace(text).empty()) {
    return ProblemList{{}, {{file, "model: must have a convolution that can be tuned"}}, {}};
  }
  // The model's problems are of these batches, types and layout already.
  ProblemOverrides left;
  left.operation = overrides.operation;
  std::istringstream in(text);
  return ReadProblemList(in, file, left);
}

absl::StatusOr<ProblemBatch> ProblemArgs::Read(app::Context& context) const {
  if (problems_.empty() && files_.empty()) {
    return absl::InvalidArgumentError("PROBLEM: at least one, or --file, must be given");
  }
  for (const std::string& problem : problems_) {
    if (IsOnnxFile(problem)) {
      return InvalidArgument("PROBLEM: must be a problem, is ", problem,
                             "; a file is named with --file");
    }
  }
  ASSIGN_OR_RETURN(const ProblemOverrides overrides, Overrides());
  if ((!dims_.empty() || runtime_) && std::none_of(files_.begin(), files_.end(), IsOnnxFile)) {
    return InvalidArgument(dims_.empty() ? "--runtime" : "--dim",
                           ": must come with an ONNX model (*.onnx)");
  }
  ProblemBatch batch;
  const auto take = [&](ProblemList list) {
    for (const std::string& notice : list.notices) context.Say(notice);
    for (ProblemRowError& error : list.errors) {
      context.SayError(error.source, ": ", error.message);
      batch.errors.push_back(std::move(error));
      batch.code = app::ExitCode::kUsage;
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
    auto list =
        IsOnnxFile(file) ? ReadModel(file, overrides) : ReadProblemListFile(file, overrides);
    // A file that cannot be read is a mistake of usage, also one that is not there.
    if (!list.ok()) return absl::InvalidArgumentError(list.status().message());
    take(*std::move(list));
  }
  return batch;
}

absl::StatusOr<ConvProblem> ProblemArgs::ReadOne() const {
  ASSIGN_OR_RETURN(const ProblemOverrides overrides, Overrides());
  const ProblemList list = ReadArgument(problem_, 1, overrides);
  if (!list.errors.empty()) {
    return InvalidArgument("PROBLEM: ", list.errors[0].message);
  }
  if (list.rows.size() != 1) return absl::InvalidArgumentError("PROBLEM: must be one problem");
  return list.rows[0].problem;
}

std::string ShortProblem(const std::string& text) {
  const auto problem = ConvProblem::Parse(text);
  if (!problem.ok()) return text;
  std::vector<std::string> kept = absl::StrSplit(text, ',');
  const auto is_same = [&problem](const std::vector<std::string>& tokens) {
    const auto read = ConvProblem::Parse(absl::StrJoin(tokens, ","));
    return read.ok() && *read == *problem;
  };
  // A token can go, or have one number for all dimensions, if what is left is still read as the
  // same problem. The layout and the type stay: people look for them.
  for (size_t i = kept.size(); i-- > 1;) {
    const size_t value = kept[i].find('=');
    if (value == std::string::npos) continue;
    std::vector<std::string> fewer = kept, shorter = kept;
    fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(i));
    shorter[i] = kept[i].substr(0, kept[i].find('x', value));
    if (is_same(fewer)) {
      kept = std::move(fewer);
    } else if (is_same(shorter)) {
      kept = std::move(shorter);
    }
  }
  return absl::StrJoin(kept, ",");
}

}  // namespace convtune::cli::input

// ProblemArgs reads problems from the command line: typed, or in files.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cli/app/context.h"
#include "client/cli/output/fields.h"
#include "proto/convert/problem_list.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace convtune::cli::input {

// The problems that the options name. Errors were said when they were read.
struct ProblemBatch {
  std::vector<ProblemRow> rows;               // the valid ones, in order
  std::vector<ProblemRowError> errors;        // the others
  app::ExitCode code = app::ExitCode::kDone;  // kUsage if there are others
};

// Value type, but its address is registered.
class ProblemArgs {
 public:
  // Adds PROBLEM..., --file, --op, --dtype, --layout and --batch, and --dim and
  // --runtime for ONNX models. *this must outlive `app`.
  void Register(CLI::App& app);
  // Adds FILE... in place of PROBLEM and --file, and the overrides. Returns FILE.
  CLI::Option* RegisterFiles(CLI::App& app);
  // True if neither problems nor files were given.
  bool is_empty() const { return problems_.empty() && files_.empty(); }
  // Adds PROBLEM and the overrides, for verbs that take one problem.
  void RegisterOne(CLI::App& app);

  // Reads all problems and files that were given; says notices and every invalid row on io.err.
  // INVALID_ARGUMENT if there is nothing to read, if an override is wrong, or if
  // a file cannot be read.
  absl::StatusOr<ProblemBatch> Read(app::Context& context) const;
  // Reads the problem of RegisterOne. INVALID_ARGUMENT if it is not one problem, or if an override
  // is wrong.
  absl::StatusOr<ConvProblem> ReadOne() const;

 private:
  void RegisterOverrides(CLI::App& app);
  void RegisterModelOptions(CLI::App& app);
  absl::StatusOr<ProblemList> ReadModel(const std::string& file,
                                        const ProblemOverrides& overrides) const;
  absl::StatusOr<ProblemOverrides> Overrides() const;

  std::vector<std::string> problems_;
  std::string problem_;  // of RegisterOne
  std::vector<std::string> files_;
  std::optional<std::string> op_, dtype_, layout_, batch_, runtime_;
  std::vector<std::string> dims_;
};

// The problem's text form without what the reader fills in by itself: shorter,
// and still read as the same problem. `text` as it is, if it cannot be read.
std::string ShortProblem(const std::string& text);
// The text form, and in a table the short one.
inline output::Value ProblemValue(const std::string& text) {
  return output::Value(text).Shown(&ShortProblem);
}

}  // namespace convtune::cli::input

// Lists of problems in files: one text form (with sizes left open, see
// sizes.h) or one protobuf JSON object
// (convtune.v1.ConvProblem) a line, or CSV whose column "problem" has text forms.
// Which it is, is seen from the content. See proto/convert/README.md.
#pragma once

#include <cstdint>
#include <istream>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/model/problem/conv_problem.h"

namespace convtune {

// ProblemOverrides replace values of a problem list. Another data type also puts the
// output, compute and intermediate types back to their defaults. Another layout drops
// explicit strides.
struct ProblemOverrides {
  std::optional<Operation> operation = std::nullopt;
  std::optional<DataType> data_type = std::nullopt;
  std::optional<TensorLayout> layout = std::nullopt;  // kNchw or kNhwc
  // Each problem once with each of them; none: the batch that the file says.
  std::vector<int64_t> batches = {};
};

struct ProblemRow {
  ConvProblem problem;
  int64_t count = 1;   // how often the workload runs it
  std::string source;  // "file:line"
  // Text of the environment that it is wanted for: the column environment_text.
  std::string environment = {};
  friend bool operator==(const ProblemRow&, const ProblemRow&) = default;
};

struct ProblemRowError {
  std::string source;
  std::string message;  // names the field (or column) and the rule
};

struct ProblemList {
  std::vector<ProblemRow> rows;         // in file order
  std::vector<ProblemRowError> errors;  // at most 1,000; reading stops there
  std::vector<std::string> notices;     // for example ignored columns
};

// Reads all of `in`. `name` stands before the line number in sources. Never
// fails as a whole: a list without problems has an error that says so, but for one of
// `convtune wanted --csv`, which has a notice that nothing is wanted.
ProblemList ReadProblemList(std::istream& in, std::string_view name,
                            const ProblemOverrides& overrides);

// True if the name ends in .onnx, in any case.
bool IsOnnxFile(const std::string& path);

// Reads the list in a file, as ReadProblemList does. NOT_FOUND if it cannot be opened;
// INVALID_ARGUMENT if it is a directory or an ONNX model. Errors begin with the path.
absl::StatusOr<ProblemList> ReadProblemListFile(const std::string& path,
                                                const ProblemOverrides& overrides);

// Return the values of the options that override a list, in the text form's words: all
// operations, and all types that inputs can have.
std::vector<std::string> OperationNames();
std::vector<std::string> InputTypeNames();

// Reads nchw, ncdhw, nhwc and ndhwc in any case.
std::optional<TensorLayout> ParseLooseLayout(std::string_view text);

// EstimatedFlops of all runs of a row: times count.
double WorkOf(const ProblemRow& row);

// Each problem once, with the counts of its rows together and the source of the first, in the
// order of the list.
std::vector<ProblemRow> Distinct(const std::vector<ProblemRow>& rows);
// The same with the most work first, between equals in the order of the list.
std::vector<ProblemRow> MostWorkFirst(const std::vector<ProblemRow>& rows);

}  // namespace convtune

// The convolutions of ONNX files, as the Python package finds them.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"

namespace convtune::cli {

// True if the file's name ends in .onnx.
bool IsOnnxFile(const std::string& path);

// What `python3 -m convtune problems PATH` prints: a list in the text form. Its
// notices and errors go to stderr. The interpreter is $CONVTUNE_PYTHON, else
// python3. NOT_FOUND if the file is not there; FAILED_PRECONDITION if there is
// no such interpreter, and INVALID_ARGUMENT if the package is not there or
// refuses the model: both say how to get it. `batch` is the size of a symbolic
// batch dimension.
absl::StatusOr<std::string> OnnxProblems(const std::string& path, std::optional<int64_t> batch);

}  // namespace convtune::cli

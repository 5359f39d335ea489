// The convolutions of ONNX files, as the Python package finds them.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace convtune::cli::input {

// The output of `python3 -m convtune problems PATH OPTIONS`: a list in the text
// form, empty if the model has no convolution that can be tuned. Its notices and
// errors go to stderr. The interpreter is $CONVTUNE_PYTHON, else python3.
// NOT_FOUND if the file is not there; FAILED_PRECONDITION if there is no such
// interpreter, and INVALID_ARGUMENT if the package is not there or refuses the
// model: both say how to get it. Errors begin with the path.
absl::StatusOr<std::string> OnnxProblems(const std::string& path,
                                         const std::vector<std::string>& options);

}  // namespace convtune::cli::input

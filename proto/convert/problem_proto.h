// Conversions between convtune.v1's problem and the model's.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "convtune/v1/problem.pb.h"
#include "proto/model/problem/conv_problem.h"
#include "proto/model/violation.h"

namespace convtune {

// Reads the fields without judging the problem itself. Unknown enum numbers
// are violations, with `prefix` ("problems[3].problem", may be empty) before
// the field's name.
ConvProblemSpec SpecFromProto(const v1::ConvProblem& proto, std::string_view prefix,
                              std::vector<Violation>* violations);

// The problem, or nullopt and at least one violation. `prefix` as above.
std::optional<ConvProblem> ProblemFromProto(const v1::ConvProblem& proto, std::string_view prefix,
                                            std::vector<Violation>* violations);

// Either form; `prefix` is the path of the ProblemSpec, "problems[3]". Fields
// are then "problems[3].problem.pad_low[1]" or, for all that is wrong with a
// text, "problems[3].text".
std::optional<ConvProblem> ProblemFromProto(const v1::ProblemSpec& proto, std::string_view prefix,
                                            std::vector<Violation>* violations);

// Every field is set as it is in the problem; strides only for STRIDED.
v1::ConvProblem ProblemToProto(const ConvProblem& problem);

}  // namespace convtune

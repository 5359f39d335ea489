// Known notes of cuDNN's legacy algorithms, which cuDNN itself does not tell.
#pragma once

#include <cstdint>

#include "proto/model/problem/conv_problem.h"
#include "proto/model/tuning/candidate.h"

namespace convtune {

// See LegacyNotes (note_rules.h).
uint32_t LegacyNumericalNotes(Operation operation, DataType data_type, int64_t filter_extent,
                              const LegacyAlgorithm& algorithm, bool deterministic);
uint32_t LegacyNumericalNotes(const ConvProblem& problem, const LegacyAlgorithm& algorithm,
                              bool deterministic);

}  // namespace convtune

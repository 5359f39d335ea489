// Known notes of cuDNN's legacy algorithms, which cuDNN itself does not tell.
#pragma once

#include <cstdint>

#include "proto/model/candidate.h"
#include "proto/model/conv_problem.h"

namespace convtune {

// Numerical notes of a legacy algorithm on inputs of `data_type` with a filter
// whose longest side is `filter_extent`, as a mask. The legacy API reports none:
// they follow from the algorithm, the math type and what cudnnFind* says of
// determinism. Where cuDNN is free to choose, the note is set.
uint32_t LegacyNumericalNotes(Operation operation, DataType data_type, int64_t filter_extent,
                              const LegacyAlgorithm& algorithm, bool deterministic);
uint32_t LegacyNumericalNotes(const ConvProblem& problem, const LegacyAlgorithm& algorithm,
                              bool deterministic);

}  // namespace convtune

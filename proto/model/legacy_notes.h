// What is known of legacy algorithms without asking cuDNN.
#pragma once

#include <cstdint>

#include "proto/model/candidate.h"

namespace convtune {

// Numerical notes of a legacy algorithm on inputs of `data_type`, as a mask.
// The legacy API reports none: they follow from the algorithm, the math type
// and what cudnnFind* says of determinism. Where cuDNN is free to choose, the
// note is set.
uint32_t LegacyNumericalNotes(Operation operation, DataType data_type,
                              const LegacyAlgorithm& algorithm, bool deterministic);

}  // namespace convtune

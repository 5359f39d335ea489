#include "proto/model/tuning/legacy_notes.h"

#include <algorithm>
#include <vector>

#include "proto/model/tuning/note_rules.h"

namespace convtune {

uint32_t LegacyNumericalNotes(Operation operation, DataType data_type, int64_t filter_extent,
                              const LegacyAlgorithm& algorithm, bool deterministic) {
  return LegacyNotes(operation, data_type, filter_extent, algorithm.algorithm, algorithm.math_type,
                     deterministic);
}

uint32_t LegacyNumericalNotes(const ConvProblem& problem, const LegacyAlgorithm& algorithm,
                              bool deterministic) {
  const std::vector<int64_t>& w = problem.w_dims();
  return LegacyNumericalNotes(problem.operation(), problem.data_type(),
                              *std::max_element(w.begin() + 2, w.end()), algorithm, deterministic);
}

}  // namespace convtune

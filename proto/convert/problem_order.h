// Orders the problems of a list so that the best order of tuning results.
#pragma once

#include <vector>

#include "proto/convert/problem_list.h"

namespace convtune {

// Floating-point operations of one run: two for each multiplication of the
// direct method, padding included, whatever the operation.
double EstimatedFlops(const ConvProblem& problem);

// Each problem once, with the counts of its rows together and the source of the
// first; those that the workload spends most on (count times EstimatedFlops)
// first, between equals in the order of the list.
std::vector<ProblemRow> MostWorkFirst(const std::vector<ProblemRow>& rows);

}  // namespace convtune

#pragma once

#include <random>

#include "proto/model/problem/conv_problem.h"

namespace convtune {

// A spec that keeps to every rule, over all operations, ranks, types, layouts
// and epilogues.
ConvProblemSpec RandomValidSpec(std::mt19937_64& random);

}  // namespace convtune

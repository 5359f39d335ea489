#pragma once

#include <random>

#include "convtune/v1/problem.pb.h"
#include "proto/model/problem/conv_problem.h"

namespace convtune {

// A spec that keeps to every rule, over all operations, ranks, types, layouts
// and epilogues.
v1::ConvProblem RandomValidSpec(std::mt19937_64& random);

}  // namespace convtune

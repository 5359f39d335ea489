// LegacyObstacle says why the legacy API cannot take a problem.
#pragma once

#include <string>

#include "proto/model/problem/conv_problem.h"
#include "proto/model/tuning/legacy_notes.h"

namespace convtune::worker::cudnn {

// Says why the legacy API cannot express the problem; empty if it can.
std::string LegacyObstacle(const ConvProblem& problem);

}  // namespace convtune::worker::cudnn

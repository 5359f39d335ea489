// Which problems the legacy API takes, and the known notes of its algorithms.
#pragma once

#include <string>

#include "proto/model/conv_problem.h"
#include "proto/model/legacy_notes.h"

namespace convtune::worker::cudnn {

// Why the legacy API cannot express the problem; empty if it can.
std::string LegacyObstacle(const ConvProblem& problem);

}  // namespace convtune::worker::cudnn

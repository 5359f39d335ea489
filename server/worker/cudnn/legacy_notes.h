// What the legacy API can be asked; with what is known of its algorithms.
#pragma once

#include <string>

#include "proto/model/conv_problem.h"
#include "proto/model/legacy_notes.h"

namespace convtune::worker::cudnn {

// Why the legacy API cannot express the problem; empty if it can.
std::string LegacyObstacle(const ConvProblem& problem);

}  // namespace convtune::worker::cudnn

// The verbs about what unmodified programs are served.
#pragma once

#include <memory>

#include "client/cli/command.h"

namespace convtune {

std::unique_ptr<Command> NewReleaseCommand();
std::unique_ptr<Command> NewWantedCommand();
std::unique_ptr<Command> NewRunCommand();
// Becomes convtune-fleet.
std::unique_ptr<Command> NewFleetCommand();

}  // namespace convtune

// RunCli runs the program.
#pragma once

#include <string>
#include <vector>

#include "client/cli/output/io.h"

namespace convtune::cli {

// The program: runs the command that `arguments` (without the program's name)
// say, and returns its exit code, see app/context.h.
int RunCli(const std::vector<std::string>& arguments, output::Io& io);

}  // namespace convtune::cli

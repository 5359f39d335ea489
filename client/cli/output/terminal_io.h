// TerminalIo is the Io of a real run.
#pragma once

#include "client/cli/output/io.h"

namespace convtune::cli {

// The program's own standard streams and environment.
Io TerminalIo();

}  // namespace convtune::cli

// TerminalIo is the Io of a real run.
#pragma once

#include "client/cli/io.h"

namespace convtune {

// The program's own standard streams and environment.
Io TerminalIo();

}  // namespace convtune

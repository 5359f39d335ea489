#include "client/cli/commands/commands.h"
#include "client/cli/output/io.h"

int main(int argc, char** argv) {
  convtune::cli::output::Io io = convtune::cli::output::TerminalIo();
  return convtune::cli::output::EndOutput(
      convtune::cli::commands::RunCli({argv + 1, argv + argc}, io));
}

#include <iostream>

#include "client/cli/app/cli.h"
#include "client/cli/output/terminal_io.h"

int main(int argc, char** argv) {
  convtune::cli::Io io = convtune::cli::TerminalIo();
  const int code = convtune::cli::RunCli({argv + 1, argv + argc}, io);
  std::cout.flush();
  return std::cout ? code : 1;
}

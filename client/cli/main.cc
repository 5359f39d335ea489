#include <iostream>

#include "client/cli/cli.h"
#include "client/cli/terminal_io.h"

int main(int argc, char** argv) {
  convtune::Io io = convtune::TerminalIo();
  const int code = convtune::RunCli({argv + 1, argv + argc}, io);
  std::cout.flush();
  return std::cout ? code : 1;
}

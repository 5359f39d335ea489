#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <iostream>

#include "client/cli/commands/commands.h"
#include "client/cli/output/io.h"

int main(int argc, char** argv) {
  convtune::cli::output::Io io = convtune::cli::output::TerminalIo();
  const int code = convtune::cli::commands::RunCli({argv + 1, argv + argc}, io);
  errno = 0;
  std::cout.flush();
  if (std::cout) return code;
  // Where an earlier write failed, one byte more says why.
  if (errno == 0 && write(STDOUT_FILENO, "\n", 1) == 1) errno = EIO;
  std::cerr << "error: standard output: " << std::strerror(errno) << "\n";
  return 1;
}

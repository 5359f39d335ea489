#include "client/cli/output/io.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <iostream>

namespace convtune::cli::output {
namespace {

int TerminalColumns() {
  for (const int fd : {STDOUT_FILENO, STDERR_FILENO}) {
    winsize size{};
    if (ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  }
  return 120;
}

}  // namespace

Io TerminalIo() {
  return {std::cin,
          std::cout,
          std::cerr,
          isatty(STDOUT_FILENO) != 0,
          isatty(STDERR_FILENO) != 0,
          TerminalColumns(),
          [](const std::string& name) -> std::optional<std::string> {
            const char* value = std::getenv(name.c_str());
            if (value == nullptr) return std::nullopt;
            return value;
          }};
}

int EndOutput(int code) {
  errno = 0;
  std::cout.flush();
  if (std::cout) return code;
  // Where an earlier write failed, one byte more says why.
  if (errno == 0 && write(STDOUT_FILENO, "\n", 1) == 1) errno = EIO;
  std::cerr << "error: standard output: " << std::strerror(errno) << "\n";
  return 1;
}

bool WantsColor(const Io& io, bool terminal) {
  return terminal && io.env("NO_COLOR").value_or("").empty() &&
         io.env("TERM").value_or("") != "dumb";
}

}  // namespace convtune::cli::output

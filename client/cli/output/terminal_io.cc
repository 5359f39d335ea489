#include "client/cli/output/terminal_io.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <optional>
#include <string>

namespace convtune::cli {
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

}  // namespace convtune::cli

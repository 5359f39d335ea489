// Io is the world around one run of the program.
#pragma once

#include <functional>
#include <iosfwd>
#include <optional>
#include <string>

namespace convtune::cli::output {

// Tests have an Io of their own.
struct Io {
  std::istream& in;
  std::ostream& out;  // data
  std::ostream& err;  // words
  bool out_is_terminal = false;
  bool err_is_terminal = false;
  int columns = 120;                                                  // width of the terminal
  std::function<std::optional<std::string>(const std::string&)> env;  // getenv
};

// The program's own standard streams and environment.
Io TerminalIo();

// Writes what std::cout still holds. Gives `code`, or else 1 and says on std::cerr why the data
// could not be written: a full disk must not pass for the end of a report.
int EndOutput(int code);

// True if `terminal` is one on which colour is wanted: NO_COLOR is unset or
// empty (https://no-color.org), and TERM is not "dumb".
bool WantsColor(const Io& io, bool terminal);

}  // namespace convtune::cli::output

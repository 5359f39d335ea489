// UsageError explains a command line that is not understood.
#pragma once

#include <string>

namespace CLI {
class App;
class ParseError;
}  // namespace CLI

namespace convtune::cli::app {

// One sentence, without "error: ", for what `root` made of the arguments: the
// parser's own, but for a command that there is not, and for an option in front
// of the command that it belongs to.
std::string UsageError(const CLI::App& root, const CLI::ParseError& error);

}  // namespace convtune::cli::app

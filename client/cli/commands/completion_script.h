// Writes the completion scripts of shells.
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace convtune::cli {

// Completion script of the whole tree below `root`: verbs, options, and the
// values of options that have a fixed set.
std::string BashCompletion(const CLI::App& root);
std::string ZshCompletion(const CLI::App& root);
std::string FishCompletion(const CLI::App& root);

}  // namespace convtune::cli

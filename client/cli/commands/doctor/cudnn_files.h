// What the files of a cuDNN say of themselves, read without loading them.
#pragma once

#include <string>
#include <vector>

namespace convtune::cli::commands::doctor {

// The names of the libraries of cuDNN that `file` opens when it needs them, "libcudnn_ops", as
// its text has them. Empty if the file cannot be read.
std::vector<std::string> LibrariesNamedIn(const std::string& file);

// The version in the symbol "cudnn_..._version" of an ELF file, "9.20.0", which the libraries
// graph, ops and adv have. Empty without one.
std::string VersionInFile(const std::string& file);

}  // namespace convtune::cli::commands::doctor

// AuthorOf says who decides, for verbs that keep it.
#pragma once

#include <string>

namespace convtune::cli::input {

// `given`, or the user's name where that is empty.
std::string AuthorOf(const std::string& given);

}  // namespace convtune::cli::input

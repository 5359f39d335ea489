// Finds the interposer's library.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace convtune::cli::commands::run {

inline constexpr char kPreloadLibrary[] = "libconvtune_preload.so";

// The real path of the library, as it is built or installed with this
// program. FAILED_PRECONDITION: it is in none of the places.
absl::StatusOr<std::string> FindPreloadLibrary();

}  // namespace convtune::cli::commands::run

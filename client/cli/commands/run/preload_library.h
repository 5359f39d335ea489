// Finds the interposer's libraries.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace convtune::cli::commands::run {

inline constexpr char kPreloadLibrary[] = "libconvtune_preload.so";
inline constexpr char kAuditLibrary[] = "libconvtune_audit.so";

// The real path of the library of that name, as it is built or installed with
// this program. FAILED_PRECONDITION: it is in none of the places.
absl::StatusOr<std::string> FindPreloadLibrary(const std::string& name);

}  // namespace convtune::cli::commands::run

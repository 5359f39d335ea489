// Paths of what is installed beside the running program.
#pragma once

#include <set>
#include <string>

#include "absl/status/statusor.h"

namespace convtune {

// convtune-worker beside the running program.
std::string DefaultWorkerPath();

// The file of a device profile: `name_or_file` itself if it is a file, else
// NAME.json in share/convtune/profiles beside the program's folder, else in the
// source tree that it was built from. A "profile:" before the name is ignored.
// NOT_FOUND names the folders.
absl::StatusOr<std::string> FindProfile(const std::string& name_or_file);
// The names that FindProfile finds without a file, sorted; empty if there is no such folder.
std::set<std::string> ProfileNames();

}  // namespace convtune

// Functions that put whole files in their place, so that they stay when the power fails.
// Thread-safe.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace convtune {

// "path: action: the system's words for errno". RESOURCE_EXHAUSTED for a full disk or quota,
// UNAVAILABLE for anything else.
absl::Status FileError(const std::string& path, std::string_view action);

// Writes `bytes` to a temporary name beside `path`, fsyncs, renames it over
// `path` (mode 0644 whatever the umask) and fsyncs the folder. Nothing is left
// behind on an error, which names the path.
absl::Status ReplaceFile(const std::string& path, std::string_view bytes);

// Makes a file that was put in the place `path` stay there when the power
// fails. Errors name the folder. A folder that may not be opened for reading, or
// whose file system cannot sync one, is no error: the file is in its place, and
// its owner can do no more.
absl::Status SyncFolderOf(const std::string& path);

}  // namespace convtune

// Default paths of the daemon's socket and database, and of what is installed beside the running
// program.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace convtune {

// Socket of this user's daemon: /run/convtune/convtune.sock for root, else
// $XDG_RUNTIME_DIR/convtune/convtune.sock, else
// /tmp/convtune-<uid>/convtune.sock. The last one's folder is writable by its
// owner alone or not to be trusted: see IsPrivateDirectory. Thread-safe as long
// as nobody changes the environment; so are all of these.
std::string DefaultSocketPath();

// Returns the sockets at which a client looks for a daemon if none is named: this
// user's, then the system's, which is the same one for root.
std::vector<std::string> ClientSocketPaths();

// The first of `paths` that is a socket; the first one if none is. A folder
// below /tmp that others can write to is passed over.
std::string FirstSocket(const std::vector<std::string>& paths);

// convtune's folder of one kind of this user's files: below $`variable`, such as XDG_STATE_HOME, or
// where that is no absolute path below `below_home` of the home directory, such as .local/state.
std::string UserFolder(const char* variable, const std::string& below_home);

// Directory of the database: $STATE_DIRECTORY (systemd) if set, else
// /var/lib/convtune if it belongs to this user and is writable, else
// $XDG_STATE_HOME/convtune, else ~/.local/state/convtune.
std::string DefaultStateDir();

// True if `path` is a directory, not a link, that belongs to this user and that
// nobody else can write to.
bool IsPrivateDirectory(const std::string& path);

// The folder of the running program.
std::string ProgramFolder();
// convtune-worker beside the running program.
std::string DefaultWorkerPath();

// The file of a device profile: `name_or_file` itself if it is a file, else
// NAME.json in share/convtune/profiles beside the program's folder, else in the
// source tree that it was built from. A "profile:" before the name is ignored.
// NOT_FOUND names the folders.
absl::StatusOr<std::string> FindProfile(const std::string& name_or_file);
// Returns the names of all profiles that FindProfile finds by name, sorted. FAILED_PRECONDITION if
// no folder has a profile; it names the folders.
absl::StatusOr<std::set<std::string>> ProfileNames();

}  // namespace convtune

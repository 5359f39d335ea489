// Where the daemon and its clients meet when nobody says where.
#pragma once

#include <string>

namespace convtune {

// Socket of this user's daemon: /run/convtune/convtune.sock for root, else
// $XDG_RUNTIME_DIR/convtune/convtune.sock, else
// /tmp/convtune-<uid>/convtune.sock. The last one's folder is writable by its
// owner alone or not to be trusted: see IsPrivateDirectory. Thread-safe as long
// as nobody changes the environment; so are all of these.
std::string DefaultSocketPath();

// Directory of the database: $STATE_DIRECTORY (systemd) if set, else
// /var/lib/convtune if it exists and is writable, else
// $XDG_STATE_HOME/convtune, else ~/.local/state/convtune.
std::string DefaultStateDir();

// True if `path` is a directory, not a link, that belongs to this user and that
// nobody else can write to.
bool IsPrivateDirectory(const std::string& path);

}  // namespace convtune

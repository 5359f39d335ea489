// A SnapshotFile is a snapshot in memory, read from its file and verified; FindSnapshotFolder says
// where the file is. Freestanding.
#pragma once

#include <stddef.h>

#include "db/snapshot/snapshot.h"

namespace convtune::snapshot {

// Not thread-safe while it is read; then it does not change.
class SnapshotFile {
 public:
  SnapshotFile() = default;
  ~SnapshotFile();
  SnapshotFile(const SnapshotFile&) = delete;
  SnapshotFile& operator=(const SnapshotFile&) = delete;

  // Reads the file into private memory: whoever cuts a mapped one short kills its reader. Returns
  // false and sets the reason if the file is missing, there is no memory for it, or its
  // verification fails. Call it once.
  bool Read(const char* path, const char** reason);
  // Of a file that was read.
  const SnapshotView& view() const { return view_; }

 private:
  void* data_ = nullptr;
  SnapshotView view_;
};

// A folder's path.
struct SnapshotFolder {
  char path[4032];  // with the name of a file behind it, it fits into PATH_MAX
};

// Finds the folder in which a client looks for the snapshot if none is named: the first with a
// snapshot that can be read of $STATE_DIRECTORY/snapshot (systemd), this user's
// $XDG_STATE_HOME/convtune/snapshot (~/.local/state) and /var/lib/convtune/snapshot; else the first
// that is there and can be entered; else the first. `ask_for_user`: without $HOME the user's home
// is asked for (getpwuid_r), which may block. Thread-safe as long as nobody changes the
// environment.
SnapshotFolder FindSnapshotFolder(bool ask_for_user = true);

}  // namespace convtune::snapshot

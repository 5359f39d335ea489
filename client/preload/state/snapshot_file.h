#pragma once

#include "db/snapshot/snapshot.h"

namespace convtune::preload::state {

// Reads and verifies a snapshot file into private memory that stays for the
// life of the process; a file above kSnapshotCopyLimit is mapped. False, with a
// reason, if there is none or it does not hold; nothing is kept then. The view
// is for this process alone.
bool LoadSnapshot(const char* path, snapshot::SnapshotView* view, const char** reason);

}  // namespace convtune::preload::state

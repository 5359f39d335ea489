// The State of a process holds its settings and its snapshot, read once.
#pragma once

#include "client/preload/state/settings.h"
#include "db/snapshot/snapshot_file.h"

namespace convtune::preload::state {

struct State {
  Settings settings;
  bool active = false;  // false: everything passes through
  bool has_snapshot = false;
  const char* snapshot_reason = "";  // why there is none
  snapshot::SnapshotFile file;
  snapshot::SnapshotView view;  // of the file
  bool canary = false;          // this process is of the canary's share
};

// The first call reads the variables and the snapshot and installs the fork and
// exit handlers; nothing is done before. Thread-safe.
const State& GetState();

// True once the kill-switch file exists. Asks the file system.
bool Killed(const State& state);

// The entry for a problem, of the canary or the stable channel. Null if there
// is none; `environment_known` says whether the environment has a section.
const snapshot::SnapshotEntry* LookUp(const State& state,
                                      const snapshot::EnvironmentKey& environment,
                                      const snapshot::ProblemKey& key, uint64_t hash,
                                      bool* environment_known);

}  // namespace convtune::preload::state

// The State of a process holds its settings and its snapshot, read once.
#pragma once

#include <stdint.h>

#include "db/snapshot/snapshot_file.h"

namespace convtune::preload {

enum class Policy { kObserve, kReorder, kTruncate };
constexpr const char* kPolicyNames[] = {"observe", "reorder", "truncate"};  // by Policy

constexpr int kMaxPath = 4096;

struct Settings {
  bool off = false;
  Policy policy = Policy::kReorder;
  bool allow_notes = false;      // candidates with other numerical notes
  bool allow_workspace = false;  // candidates that need more workspace
  int64_t max_workspace = -1;    // bytes that a plan may need; negative: any
  bool errata = true;            // leave out engines that are known to be wrong
  bool report = true;            // send datagrams
  int canary = -1;               // 0 or 1: forced; -1: drawn by the canary's share
  char snapshot[kMaxPath] = {};  // file
  char socket[kMaxPath] = {};
  char kill_file[kMaxPath] = {};
  char counters[kMaxPath] = {};      // empty: none
  char run_counters[kMaxPath] = {};  // the file that `convtune run` reads; empty: none
};

// Name of the variable of run_counters.
constexpr char kRunCountersVariable[] = "CONVTUNE_RUN_COUNTERS";

// Reads the variables CONVTUNE_PRELOAD_* (see deploy/docs/programs.md). A value that cannot be
// understood switches everything off, with one line on stderr that names the variable and the rule.
void ReadSettings(Settings* settings);

struct State {
  Settings settings;
  bool active = false;  // false: everything passes through
  bool has_snapshot = false;
  const char* snapshot_reason = "";  // why has_snapshot is false; "valid" where it is true
  snapshot::SnapshotFile file;
  snapshot::SnapshotView view;  // of the file
  bool canary = false;          // this process is of the canary's share
};

// The first call reads the variables and the snapshot and installs the fork and
// exit handlers; nothing is done before. Thread-safe.
const State& GetState();

// True once the kill-switch file exists. Asks the file system.
bool Killed(const State& state);

}  // namespace convtune::preload

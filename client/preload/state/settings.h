// Settings are read from the variables CONVTUNE_PRELOAD_*; see deploy/docs/programs.md.
#pragma once

#include <stdint.h>

namespace convtune::preload::state {

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
  int canary = -1;               // 0 or 1: forced
  char snapshot[kMaxPath] = {};  // file
  char socket[kMaxPath] = {};
  char kill_file[kMaxPath] = {};
  char counters[kMaxPath] = {};      // empty: none
  char run_counters[kMaxPath] = {};  // the file that `convtune run` reads; empty: none
};

// Name of the variable of run_counters.
constexpr char kRunCountersVariable[] = "CONVTUNE_RUN_COUNTERS";

// Reads the environment. A value that cannot be understood switches everything
// off, with one line on stderr that names the variable and the rule.
void ReadSettings(Settings* settings);

}  // namespace convtune::preload::state

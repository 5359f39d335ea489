// What convtune-fake-worker is told to be and to do wrong.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace convtune {

// "key=value" pairs, one a line or with ';' between; '#' starts a comment
// line. The keys are the names of the fields below.
struct FakeScript {
  std::string environment;  // empty: what the command line says
  int candidates = 8;
  uint64_t seed = 1;
  std::string driver;  // version that the probe tells
  std::string nvrtc;   // build that the probe tells of
  std::string card;    // PCI address that the probe tells: then the GPU is watched
  std::string version = CONVTUNE_VERSION;  // what it says of itself
  int uses_nvrtc = 0;                      // 1: each candidate's notes say so
  int legacy = 0;            // algorithms, listed behind the candidates; cuDNN prefers the last
  int legacy_slower_us = 0;  // what that last one takes more than the others
  int unsupported = 0;       // of the candidates, the last ones do not prepare
  int refused = 0;           // 1: OpenProblem is refused
  int prepare_delay_ms = 0;  // for each candidate
  int measure_delay_ms = 0;  // for each round
  int start_delay_ms = 0;    // before the handshake is answered
  int start_work_ms = 0;     // the same, and busy
  int listing_delay_ms = 0;  // before the first candidate
  int host_us = 0;           // of each launch
  int slow_host = -1;        // the only candidate that host_us is true of; -1: of all
  int other_processes = 0;   // on the GPU
  int busy_looks = 0;        // looks at the GPU after which they are gone; 0: never
  int clock_reasons = 0;     // NVML's mask
  int wrong = -1;            // candidate whose output is far from the reference; -2: all
  int hopeless = -1;         // candidate that is given up after its first run, of 90 ms
  int find_left_out = 0;     // 1: the legacy search is, as for a large problem
  int wrong_from = -1;       // from this candidate on all are; -1: none
  int checker_version = 1;   // see kCheckerVersion
  int nonfinite = -1;        // candidate whose output has a NaN
  int overwrites = -1;       // candidate that writes outside of its memory
  int check_delay_ms = 0;    // for each candidate
  int unblocked_from =
      -1;  // round from which the blocking kernel gives up, on which all take 1 ms; -1: none
  int unblocked_index = -1;  // the only candidate that unblocked_from is true of; -1: of all
  int64_t self_check = -1;  // mask of what fails (proto/model/tuning/conditions.h); -1: none is run
  int retried_runs = 0;     // that its conditions say
  std::string unblocked;    // the same
  std::string instrument;   // that the self-check names as failed besides; empty: none
  // segv, abort, killed (as the kernel does for want of memory), exit, hang, slow (goes on after
  // slow_ms), busy (the same, and uses the CPU), slow_segv, garbage, flood, stubborn (no signal but
  // SIGKILL ends it, and it does not talk any more), illegal (the call fails and the process ends),
  // lie (sends a sample of a candidate that was not asked for), memory (allocates until there is
  // none); empty: none.
  std::string fault;
  std::string where = "measure";  // or start, self_check, listing, legacy_listing, prepare, check
  int index = 0;                  // candidate that faults; bit of the step in self_check
  int slow_ms = 0;                // of slow, busy and slow_segv
  std::string problem;            // text of the only problem that faults; empty: any
  std::string disagree;           // part of the text of problems whose modes A and B differ
  // 1: mode A lists candidate 0 alone, which cannot be built, mode B candidate 1, FALLBACK the
  // rest.
  int split_modes = 0;
  int heedless = 0;  // 1: the self-check has the steps, too, that it was to leave out
  // A file: the fault happens only while it is not there, and makes it.
  std::string once;
  // A bundle: its tunings are answered (replay_session.h), and of these keys
  // only this one counts.
  std::string recording;
  // A file to which every request appends a line: its kind and the problem.
  std::string log;

  // Every error names the key.
  static absl::StatusOr<FakeScript> Parse(std::string_view text);
  // Of CONVTUNE_FAKE_SCRIPT or --script: a script, if there is a '=' in it,
  // else the path of a file that holds one.
  static absl::StatusOr<FakeScript> Load(const std::string& text_or_path);
};

}  // namespace convtune

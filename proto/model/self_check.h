// A SelfCheck says which of a worker's instruments work on its card, as the
// worker found when it started. What does not work limits what is concluded:
// see each field.
#pragma once

#include <cstdint>
#include <string>

#include "proto/model/enums.h"

namespace convtune {

// The known convolutions of a self-check: one for each API, operation and
// element type that was tried. f32 stands for what is wider than 16 bits (f32
// and f64), f16 for all others.
struct SelfCheckCell {
  Api api = Api::kGraph;
  Operation operation = Operation::kFwd;
  bool narrow = false;  // f16 NHWC; false: f32 NCHW
};

// Value type.
struct SelfCheck {
  // False: it was not run (a profile's worker, or one whose check ended early),
  // and the rest says nothing.
  bool known = false;
  // A blocking kernel holds the work that is queued behind it. Else samples are
  // taken without one.
  bool blocking_kernel = true;
  // Events, globaltimer and the SM clock agree with the host's clock. Else
  // nothing is measured, and answers are HEURISTIC.
  bool clock = true;
  // A flush evicts what was in L2. Else nothing is claimed of cold caches.
  bool caches = true;
  // Planted faults are found by the check of results. Else results are not
  // judged: nobody is quarantined for them, and evidence is capped.
  bool checker = true;
  // Mask of CellBit: known convolutions whose result was wrong. Candidates of
  // such a cell are not quarantined and not published.
  uint32_t failed_cells = 0;
  // What was found, for people: one line for each instrument.
  std::string details;

  friend bool operator==(const SelfCheck&, const SelfCheck&) = default;
};

inline uint32_t CellBit(const SelfCheckCell& cell) {
  return uint32_t{1} << (static_cast<int>(cell.api) * 8 + static_cast<int>(cell.operation) * 2 +
                         (cell.narrow ? 1 : 0));
}

inline bool IsNarrow(DataType type) { return type != DataType::kF32 && type != DataType::kF64; }

// True if what was computed for this API, operation and element type may be
// judged: nobody is blamed for results else. Where no self-check was run, yes.
inline bool MayJudge(const SelfCheck& check, Api api, Operation operation, DataType type) {
  if (!check.known) return true;
  return check.checker && (check.failed_cells & CellBit({api, operation, IsNarrow(type)})) == 0;
}

}  // namespace convtune

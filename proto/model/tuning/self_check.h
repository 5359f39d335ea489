// A SelfCheck says which of a worker's instruments work on its GPU, as the
// worker found when it started. A broken instrument limits the conclusions:
// see each field.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "proto/model/enums.h"

namespace convtune {

// Raised when a self-check looks at something else, or judges it otherwise, so
// that every worker checks itself anew. Persisted.
inline constexpr int kSelfCheckVersion = 1;

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
  // False: it was not run (a profile's worker), and the rest says nothing.
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
  // Findings for people: one line for each instrument.
  std::string details;

  friend bool operator==(const SelfCheck&, const SelfCheck&) = default;
};

// Bits of a self-check's result: that it was run, and each instrument that
// does not work. The bits from 18 on are those of CellBit. Also the steps of a
// self-check. Persisted: never renumber.
enum class SelfCheckBit : uint32_t {
  kRun = 1 << 0,
  kBlockingKernel = 1 << 1,
  kClock = 1 << 2,
  kCaches = 1 << 3,
  kChecker = 1 << 4
};

// From bit 18 (graph API, fwd, f32) to bit 31 (legacy API, bwd_filter, f16).
inline uint32_t CellBit(const SelfCheckCell& cell) {
  return uint32_t{1} << (static_cast<int>(cell.api) * 8 + static_cast<int>(cell.operation) * 2 +
                         (cell.narrow ? 1 : 0));
}

// All known convolutions.
std::vector<SelfCheckCell> SelfCheckCells();
// "graph:fwd:f32".
std::string Name(const SelfCheckCell& cell);

// The mask of SelfCheckBit and CellBit, without the details; 0: it was not run.
uint32_t ToMask(const SelfCheck& check);
// Bits that stand for nothing are left out.
SelfCheck SelfCheckOfMask(uint32_t mask);
// Every bit that a mask may have.
uint32_t SelfCheckBits();
// The name of each instrument that the mask says does not work, in the order of
// the bits: "blocking_kernel", "clock", "caches", "checker", "graph:fwd:f32", ...
std::vector<std::string> FailedInstruments(uint32_t mask);
// The reverse, of a self-check that was run; nullopt if a name is none.
std::optional<uint32_t> MaskOfFailed(const std::vector<std::string>& names);

inline bool IsNarrow(DataType type) { return type != DataType::kF32 && type != DataType::kF64; }

// True if what was computed for this API, operation and element type may be
// judged: nobody is blamed for results else. Where no self-check was run, yes.
inline bool MayJudge(const SelfCheck& check, Api api, Operation operation, DataType type) {
  if (!check.known) return true;
  return check.checker && (check.failed_cells & CellBit({api, operation, IsNarrow(type)})) == 0;
}

// True unless the worker's clocks were found not to agree.
inline bool MayMeasure(const SelfCheck& check) { return !check.known || check.clock; }
// True unless a flush of the caches was found to do nothing.
inline bool MayClaimCold(const SelfCheck& check) { return !check.known || check.caches; }

}  // namespace convtune

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
inline constexpr int kSelfCheckVersion = 2;

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
  // A capture that fails leaves the stream and cuDNN usable. Else nothing is
  // captured, and no replays are timed.
  bool captures = true;
  // Findings for people: one line for each instrument.
  std::string details;

  friend bool operator==(const SelfCheck&, const SelfCheck&) = default;
};

// Bits of a self-check's result: that it was run, and each instrument that
// does not work. Also the steps of a self-check. Persisted: never renumber. Bits 18 to 31
// were known convolutions, which are not tried any more: old tunings name them.
enum class SelfCheckBit : uint32_t {
  kRun = 1 << 0,
  kBlockingKernel = 1 << 1,
  kClock = 1 << 2,
  kCaches = 1 << 3,
  kChecker = 1 << 4,
  kCaptures = 1 << 5
};

// The mask of SelfCheckBit, without the details; 0: it was not run.
uint32_t ToMask(const SelfCheck& check);
// Bits that stand for nothing, or for what is not tried any more, are left out.
SelfCheck SelfCheckOfMask(uint32_t mask);
// Every bit that a mask may have, those of old tunings included.
uint32_t SelfCheckBits();
// The bits of the steps of a self-check.
uint32_t SelfCheckSteps();
// The name of each instrument that the mask says does not work, in the order of
// the bits: "blocking_kernel", "clock", "caches", "checker", "captures", "graph:fwd:f32", ...
std::vector<std::string> FailedInstruments(uint32_t mask);
// The reverse, of a self-check that was run; nullopt if a name is none.
std::optional<uint32_t> MaskOfFailed(const std::vector<std::string>& names);

// True unless the check of results was found not to work: nobody is blamed for
// results then.
inline bool MayJudge(const SelfCheck& check) { return !check.known || check.checker; }
// True unless the worker's clocks were found not to agree.
inline bool MayMeasure(const SelfCheck& check) { return !check.known || check.clock; }
// True unless a failed capture was found to spoil what comes after it.
inline bool MayCapture(const SelfCheck& check) { return !check.known || check.captures; }
// True unless a flush of the caches was found to do nothing.
inline bool MayClaimCold(const SelfCheck& check) { return !check.known || check.caches; }

}  // namespace convtune

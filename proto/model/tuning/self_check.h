// A SelfCheck says which of a worker's instruments work on its GPU, as the
// worker found when it started. A broken instrument limits the conclusions:
// see each bit.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace convtune {

// Raised when a self-check looks at something else, or judges it otherwise, so
// that every worker checks itself anew. Persisted.
inline constexpr int kSelfCheckVersion = 2;

// Bits of a self-check's result: that it was run, and each instrument that
// does not work. Also the steps of a self-check. Persisted: never renumber. Bits 18 to 31
// were known convolutions, which are not tried any more: old tunings name them.
enum class SelfCheckBit : uint32_t {
  kRun = 1 << 0,
  // A blocking kernel holds the work that is queued behind it. Else samples are
  // taken without one.
  kBlockingKernel = 1 << 1,
  // Events, globaltimer and the SM clock agree with the host's clock. Else
  // nothing is measured, and answers are HEURISTIC.
  kClock = 1 << 2,
  // A flush evicts what was in L2. Else nothing is claimed of cold caches.
  kCaches = 1 << 3,
  // Planted faults are found by the check of results. Else results are not
  // judged: nobody is quarantined for them, and evidence is capped.
  kChecker = 1 << 4,
  // A capture that fails leaves the stream and cuDNN usable. Else nothing is
  // captured, and no replays are timed.
  kCaptures = 1 << 5
};

constexpr uint32_t MaskOf(SelfCheckBit bit) { return static_cast<uint32_t>(bit); }

// Value type.
struct SelfCheck {
  uint32_t mask = 0;    // of SelfCheckBit; 0: it was not run (a profile's worker)
  std::string details;  // findings for people: one line for each instrument

  bool known() const { return (mask & MaskOf(SelfCheckBit::kRun)) != 0; }
  // True unless the instrument was found not to work.
  bool works(SelfCheckBit instrument) const { return (mask & MaskOf(instrument)) == 0; }

  friend bool operator==(const SelfCheck&, const SelfCheck&) = default;
};

// The bits of the steps of a self-check.
uint32_t SelfCheckSteps();
// The name of each instrument that the mask says does not work, in the order of
// the bits: "blocking_kernel", "clock", "caches", "checker", "captures", "graph:fwd:f32", ...
std::vector<std::string> FailedInstruments(uint32_t mask);
// The mask of a self-check that was run, of which these instruments failed; nullopt if a name is
// no instrument's.
std::optional<uint32_t> MaskOfFailed(const std::vector<std::string>& names);

}  // namespace convtune

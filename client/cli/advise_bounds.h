// What keeps a variant from being faster: the card's arithmetic, its memory, or
// the host that launches.
#pragma once

#include <map>
#include <string>
#include <utility>

#include "client/cli/advise_variants.h"

namespace convtune {

// The best of some measured figures.
struct BestSeen {
  double value = 0;
  int count = 0;        // of figures
  bool probed = false;  // by a convolution that is made to attain the most

  void Add(double figure);
};

// The best that convolutions attain on this card: those that were measured, and
// the probes of advise_ceilings.h where they could be. Value type.
struct Ceilings {
  // TFLOP/s by data type and whether TF32 was forbidden.
  std::map<std::pair<DataType, bool>, BestSeen> tflops;
  BestSeen gbytes;  // GB/s, of all
};

// Without a probe, other measurements than its own that a row is held against
// at least.
inline constexpr int kFewestOthers = 5;

// Takes in one that takes `time_us`; nothing happens if that is 0 or not known.
void Raise(const ConvProblem& problem, bool forbid_tf32, double time_us, Ceilings* ceilings);

enum class Bound { kUnknown, kLaunch, kCompute, kMemory };

struct BoundShare {
  Bound bound = Bound::kUnknown;
  double share = 0;  // of that ceiling; 0 for kLaunch
};

// kLaunch where the host needs at least as long for a launch as the GPU for the
// work, so that launches one after the other go at the host's pace; else the
// ceiling that is nearest. kUnknown where nothing was timed, and where a ceiling
// was not probed and has fewer than kFewestOthers measurements but for the row's
// own, which is among them, or is the row itself. After the roofline model
// (Williams, Waterman and Patterson, CACM 52(4), 2009).
BoundShare FindBound(const Variant& variant, const Advice& advice, double host_us,
                     const Ceilings& ceilings);

// "compute 62%", "memory 91%", "launch"; "-" if it is not known.
std::string BoundWord(const BoundShare& bound);

}  // namespace convtune

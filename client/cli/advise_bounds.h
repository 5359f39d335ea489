// What keeps a variant from being faster: the card's arithmetic, its memory, or
// the host that launches.
#pragma once

#include <map>
#include <string>
#include <utility>

#include "client/cli/advise_variants.h"

namespace convtune {

// The most that any measured convolution attains on this card, which stands in
// for what it can do. Value type.
struct Ceilings {
  // TFLOP/s by data type and whether TF32 was forbidden.
  std::map<std::pair<DataType, bool>, double> tflops;
  double gbytes = 0;  // GB/s
  int problems = 0;   // that were taken in
};

// Takes in one that takes `time_us`; nothing happens if that is 0.
void Raise(const ConvProblem& problem, bool forbid_tf32, double time_us, Ceilings* ceilings);

enum class Bound { kUnknown, kLaunch, kCompute, kMemory };

struct BoundShare {
  Bound bound = Bound::kUnknown;
  double share = 0;  // of that ceiling; 0 for kLaunch
};

// kLaunch where the host needs as long for a launch as the whole takes, else the
// ceiling that is nearest. kUnknown where nothing was timed. After the roofline
// model (Williams, Waterman and Patterson, CACM 52(4), 2009), with attained
// ceilings in place of the vendor's.
BoundShare FindBound(const Variant& variant, const Advice& advice, double host_us,
                     const Ceilings& ceilings);

// "compute 62%", "memory 91%", "launch"; "-" if it is not known.
std::string BoundWord(const BoundShare& bound);

}  // namespace convtune

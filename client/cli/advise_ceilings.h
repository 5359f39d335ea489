// What a card can do at most, as convolutions find it: from probes that advise
// has tuned, and from the daemon's tunings.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "client/cli/advise_bounds.h"
#include "client/cli/context.h"
#include "convtune/v1/tuning_service.pb.h"

namespace convtune {

// A convolution that nothing but arithmetic, or nothing but memory, limits on
// a card that cuDNN supports. Value type.
struct CeilingProbe {
  ConvProblem problem;
  Bound limit;  // kCompute or kMemory
};

// What finds the ceilings of rows of these data types. For arithmetic 1x1
// convolutions over 2,048 channels, which are matrix products of 275 GFLOP with
// 990 operations for each byte of an f16 tensor; in f32 and f64 in both layouts. For
// memory 1x1 convolutions over so few channels that the tensors' 0.4 GB and more,
// beyond any card's caches, take longer than the arithmetic.
std::vector<CeilingProbe> MakeCeilingProbes(const std::set<DataType>& types);

// Has the probes for `types` tuned, those that are not yet, with `request`, whose
// problems are ignored, and takes in what they attain. What could not be tuned,
// for lack of memory say, is left out. CANCELLED if the user or somebody else
// ended it.
absl::Status RaiseByProbes(Context& context, const v1::CreateTuningJobRequest& request,
                           const std::set<DataType>& types, Ceilings* ceilings);

// Takes in the winners of at most 10,000 measured problems of the environment of
// the settings, but for those whose text is in `but`. What the daemon does not
// answer is left out.
void RaiseByStored(Context& context, const std::set<std::string>& but, Ceilings* ceilings);

}  // namespace convtune

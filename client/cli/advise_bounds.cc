#include "client/cli/advise_bounds.h"

#include <algorithm>

#include "absl/strings/str_format.h"

namespace convtune {
namespace {

// The share of what others attain; 0 where that says nothing.
double ShareOf(double figure, const BestSeen& best) {
  const bool known = best.probed || (best.count > kFewestOthers && figure < best.value);
  return known ? std::min(figure / best.value, 1.0) : 0;
}

}  // namespace

void BestSeen::Add(double figure) {
  value = std::max(value, figure);
  ++count;
}

void Raise(const ConvProblem& problem, bool forbid_tf32, double time_us, Ceilings* ceilings) {
  if (!(time_us > 0)) return;
  ceilings->tflops[{problem.data_type(), forbid_tf32}].Add(FloatingPointOperations(problem) /
                                                           time_us / 1e6);
  ceilings->gbytes.Add(static_cast<double>(problem.TensorBytes()) / time_us / 1e3);
}

BoundShare FindBound(const Variant& variant, const Advice& advice, double host_us,
                     const Ceilings& ceilings) {
  if (!(advice.time_us > 0)) return {};
  if (host_us >= advice.time_us) return {Bound::kLaunch, 0};
  const auto most = ceilings.tflops.find({variant.problem.data_type(), variant.forbid_tf32});
  if (most == ceilings.tflops.end()) return {};
  const double compute = ShareOf(advice.tflops, most->second);
  const double memory = ShareOf(advice.gbytes, ceilings.gbytes);
  if (compute == 0 || memory == 0) return {};
  return compute >= memory ? BoundShare{Bound::kCompute, compute}
                           : BoundShare{Bound::kMemory, memory};
}

std::string BoundWord(const BoundShare& bound) {
  switch (bound.bound) {
    case Bound::kUnknown:
      return "-";
    case Bound::kLaunch:
      return "launch";
    case Bound::kCompute:
      return absl::StrFormat("compute %.0f%%", 100 * bound.share);
    case Bound::kMemory:
      return absl::StrFormat("memory %.0f%%", 100 * bound.share);
  }
  return "-";
}

}  // namespace convtune

#include "client/cli/advise_bounds.h"

#include <algorithm>

#include "absl/strings/str_format.h"

namespace convtune {
namespace {

// A median is the larger of GPU time and host time: so near, it is the latter.
constexpr double kHostSetsThePace = 0.95;

}  // namespace

void Raise(const ConvProblem& problem, bool forbid_tf32, double time_us, Ceilings* ceilings) {
  if (!(time_us > 0)) return;
  double& tflops = ceilings->tflops[{problem.data_type(), forbid_tf32}];
  tflops = std::max(tflops, FloatingPointOperations(problem) / time_us / 1e6);
  ceilings->gbytes =
      std::max(ceilings->gbytes, static_cast<double>(problem.TensorBytes()) / time_us / 1e3);
  ++ceilings->problems;
}

BoundShare FindBound(const Variant& variant, const Advice& advice, double host_us,
                     const Ceilings& ceilings) {
  if (!(advice.time_us > 0)) return {};
  if (host_us >= kHostSetsThePace * advice.time_us) return {Bound::kLaunch, 0};
  const auto most = ceilings.tflops.find({variant.problem.data_type(), variant.forbid_tf32});
  const double compute = most == ceilings.tflops.end() ? 0 : advice.tflops / most->second;
  const double memory = ceilings.gbytes > 0 ? advice.gbytes / ceilings.gbytes : 0;
  if (compute == 0 && memory == 0) return {};
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

#include "server/decision/library_versions.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace convtune::decision {
namespace {

std::string WhyOtherLibrary(const char* library, const std::string& then, const std::string& now) {
  if (now.empty() || then == now) return "";
  return absl::StrCat("measured with ", then.empty() ? "an unknown " : "", library,
                      then.empty() ? "" : " ", then, ", there is ", now, " now");
}

}  // namespace

std::string WhyOutdated(const Tuning& tuning, const LibraryVersions& now) {
  if (tuning.evidence == Evidence::kObserved) return "";
  const Provenance& then = tuning.provenance;
  const auto uses = [&tuning](BehaviorNote note) {
    return std::any_of(tuning.candidates.begin(), tuning.candidates.end(),
                       [note](const Candidate& c) { return c.usable() && c.has(note); });
  };
  if (uses(BehaviorNote::kCublasLtDependency)) {
    std::string why = WhyOtherLibrary("cuBLASLt", then.cublaslt_build, now.cublaslt);
    if (!why.empty()) return why;
  }
  return uses(BehaviorNote::kRuntimeCompilation)
             ? WhyOtherLibrary("NVRTC", then.nvrtc_build, now.nvrtc)
             : "";
}

std::string WhyOutdated(const Tuning& tuning, const LibrariesByEnvironment& now) {
  const auto found = now.find(tuning.key.environment_text);
  return found == now.end() ? "" : WhyOutdated(tuning, found->second);
}

}  // namespace convtune::decision

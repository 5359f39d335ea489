#include "server/decision/library_versions.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "proto/base/strings.h"

namespace convtune::decision {
namespace {

std::string WhyOtherLibrary(const char* library, const std::string& then, const std::string& now) {
  if (now.empty() || then == now) return "";
  return absl::StrCat("measured with ", then.empty() ? "an unknown " : "", library,
                      then.empty() ? "" : " ", then, ", there is ", now, " now");
}

}  // namespace

LibraryVersions ParseLibraryVersions(std::string_view cuda_version) {
  LibraryVersions versions;
  for (std::string_view token : Split(cuda_version, ',')) {
    if (ConsumeFront(&token, "cublaslt=")) {
      versions.cublaslt = std::string(token);
    } else if (ConsumeFront(&token, "nvrtc=")) {
      versions.nvrtc = std::string(token);
    }
  }
  return versions;
}

std::string WhyOutdated(const Tuning& tuning, const LibraryVersions& now) {
  if (tuning.evidence == Evidence::kObserved) return "";
  const LibraryVersions then = ParseLibraryVersions(tuning.provenance.cuda_version);
  const auto uses = [&tuning](BehaviorNote note) {
    return std::any_of(tuning.candidates.begin(), tuning.candidates.end(),
                       [note](const Candidate& c) { return c.ran() && c.has(note); });
  };
  if (uses(BehaviorNote::kCublasLtDependency)) {
    std::string why = WhyOtherLibrary("cuBLASLt", then.cublaslt, now.cublaslt);
    if (!why.empty()) return why;
  }
  return uses(BehaviorNote::kRuntimeCompilation) ? WhyOtherLibrary("NVRTC", then.nvrtc, now.nvrtc)
                                                 : "";
}

std::string WhyOutdated(const Tuning& tuning, const LibrariesByEnvironment& now) {
  const auto found = now.find(tuning.key.environment_text);
  return found == now.end() ? "" : WhyOutdated(tuning, found->second);
}

}  // namespace convtune::decision

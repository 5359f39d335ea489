#include "server/tuner/library_versions.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "server/tuner/ranking.h"

namespace convtune {
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
                       [note](const Candidate& c) { return c.ran() && c.has(note); });
  };
  if (uses(BehaviorNote::kCublasLtDependency)) {
    std::string why = WhyOtherLibrary("cuBLASLt", then.cublaslt_build, now.cublaslt);
    if (!why.empty()) return why;
  }
  return uses(BehaviorNote::kRuntimeCompilation)
             ? WhyOtherLibrary("NVRTC", then.nvrtc_build, now.nvrtc)
             : "";
}

void MarkOutdated(const std::string& why, Tuning* tuning) {
  tuning->evidence = Evidence::kNone;
  tuning->incomplete = 0;
  tuning->incomplete_reason.clear();
  AddReason(IncompleteReason::kOutdated, absl::StrCat("does not hold any more: ", why), tuning);
}

bool WasMeasuredAndIsOutdated(const Tuning& tuning) {
  return tuning.has(IncompleteReason::kOutdated) &&
         std::any_of(tuning.candidates.begin(), tuning.candidates.end(),
                     [](const Candidate& c) { return c.timed(); });
}

std::string HoldingStore::WhyOutdated(const Tuning& tuning) const {
  const auto found = now_.find(tuning.key.environment_text);
  return found == now_.end() ? "" : convtune::WhyOutdated(tuning, found->second);
}

void HoldingStore::Mark(Tuning* tuning) const {
  if (const std::string why = WhyOutdated(*tuning); !why.empty()) MarkOutdated(why, tuning);
}

absl::Status HoldingStore::PutTuning(const Tuning& tuning, const Environment& environment) {
  if (!tuning.has(IncompleteReason::kOutdated)) return store_->PutTuning(tuning, environment);
  ASSIGN_OR_RETURN(const Tuning stored, store_->GetTuning(tuning.key));
  Tuning unmarked = tuning;
  unmarked.evidence = stored.evidence;
  unmarked.incomplete = stored.incomplete;
  unmarked.incomplete_reason = stored.incomplete_reason;
  NoteQuarantined(&unmarked);
  return store_->PutTuning(unmarked, environment);
}

absl::StatusOr<Tuning> HoldingStore::GetTuning(const TuningKey& key) {
  ASSIGN_OR_RETURN(Tuning tuning, store_->GetTuning(key));
  Mark(&tuning);
  return tuning;
}

absl::Status HoldingStore::ForEachTuning(const std::function<bool(Tuning)>& visit,
                                         const std::function<void(const std::string&)>& corrupt) {
  return store_->ForEachTuning(
      [this, &visit](Tuning tuning) {
        Mark(&tuning);
        return visit(std::move(tuning));
      },
      corrupt);
}

}  // namespace convtune

#include "server/worker/legacy_ranks.h"

namespace convtune {

void LegacyRanks::Add(const std::vector<FoundAlgorithm>& expected) {
  for (const FoundAlgorithm& entry : expected) {
    if (entry.status != CUDNN_STATUS_SUCCESS) continue;
    if (places_.emplace(entry.id, static_cast<int>(ranked_.size())).second) {
      ranked_.push_back(entry);
    }
  }
}

int LegacyRanks::Of(const LegacyAlgorithm& algorithm) const {
  const auto found = places_.find(algorithm);
  return found == places_.end() ? -1 : found->second;
}

}  // namespace convtune

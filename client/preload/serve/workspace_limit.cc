#include "client/preload/serve/workspace_limit.h"

#include <stdlib.h>

#include <algorithm>

#include "client/preload/process/counters.h"
#include "client/preload/process/descriptor.h"
#include "client/preload/report/problems.h"
#include "client/preload/shadow/engine_config.h"

namespace convtune::preload::serve {
namespace {

void FindWithin(int64_t limit, const shadow::HeuristicsShadow& query,
                cudnnBackendDescriptor_t heuristics, report::WithinLimit* within) {
  static_assert(report::WithinLimit::kMost == shadow::kMaxPlaces);
  process::Descriptors list(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, shadow::kMaxPlaces);
  const int count = shadow::ListConfigs(heuristics, &list);
  within->all = true;
  within->count = 0;
  for (int i = 0; i < count; ++i) {
    const int64_t workspace = shadow::ToldWorkspaceOf(query, list[i]);
    within->all = within->all && workspace <= limit;
    if (FitsInto(limit, workspace)) {
      within->places[within->count++] = static_cast<int16_t>(i);
    }
  }
  if (within->all) {
    return;  // nothing is left out
  }
  // cuDNN tells the workspace of some configs of which no plan can be built. The list that
  // is offered begins with a config that can be built. If no config of this mode can be,
  // another mode's list may have one.
  int first = 0;
  while (first < within->count &&
         !FitsInto(limit, shadow::WorkspaceOf(query, list[within->places[first]]))) {
    ++first;
  }
  std::copy(within->places + first, within->places + within->count, within->places);
  within->count -= first;
}

// Found out once for each problem and mode, since plans are built for it. `room` is for queries
// whose problem has no key.
const report::WithinLimit& Within(int64_t limit, const shadow::HeuristicsShadow& query, int mode,
                                  cudnnBackendDescriptor_t heuristics, report::WithinLimit* room) {
  const auto find = [&](report::WithinLimit* within) {
    FindWithin(limit, query, heuristics, within);
    return true;
  };
  const report::WithinLimit* known = nullptr;
  if (query.problem != nullptr && mode >= 0 && mode < report::kModes) {
    known = query.problem->within[mode].Get(find);
  }
  if (known == nullptr) {
    find(room);
    known = room;
  }
  return *known;
}

// Cuts what the query gives to its stored configs and these, which are of its own list or, where
// it is not null, of that of `other`, which is taken over.
void Cut(const report::WithinLimit& within, process::Descriptor* other,
         shadow::HeuristicsShadow* query) {
  if (query->served == nullptr) {
    query->served = static_cast<shadow::Served*>(calloc(1, sizeof(shadow::Served)));
  }
  shadow::Served* served = query->served;
  if (served == nullptr) {
    return;
  }
  served->cut = true;
  served->other = other == nullptr ? nullptr : other->Release();
  served->place_count = within.count;
  std::copy_n(within.places, within.count, served->places);
  process::Count(&process::counters.limited);
}

}  // namespace

void LimitWorkspace(int64_t limit, cudnnBackendDescriptor_t heuristics,
                    shadow::HeuristicsShadow* query) {
  // What is cut already keeps to the limit.
  if (query->served != nullptr && query->served->cut) {
    return;
  }
  report::WithinLimit room;
  const report::WithinLimit& own = Within(limit, *query, query->mode, heuristics, &room);
  if (own.all) {
    return;
  }
  if (own.count > 0 || query->served != nullptr) {
    Cut(own, nullptr, query);
    return;
  }
  for (const cudnnBackendHeurMode_t mode :
       {CUDNN_HEUR_MODE_FALLBACK, CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_B}) {
    if (mode == query->mode) {
      continue;
    }
    process::Descriptor other(shadow::MakeQuery(*query, mode));
    if (!other) {
      continue;
    }
    const report::WithinLimit& within = Within(limit, *query, mode, other.get(), &room);
    if (within.count > 0) {
      Cut(within, &other, query);
      return;
    }
  }
  process::Count(&process::counters.over_limit);
}

int LimitLegacy(int64_t limit, int count, int most, LegacyResult* results) {
  const auto fits = [limit](const LegacyResult& result) {
    return result.memory <= static_cast<uint64_t>(limit);
  };
  const LegacyResult* end = results + count;
  const bool any = std::any_of(results, results + count, [&](const LegacyResult& result) {
    return result.status == CUDNN_STATUS_SUCCESS && fits(result);
  });
  const bool all = std::all_of(results, results + count, fits);
  if (!all) {
    process::Count(any ? &process::counters.limited : &process::counters.over_limit);
  }
  if (any) {
    end = std::remove_if(results, results + count,
                         [&](const LegacyResult& result) { return !fits(result); });
  }
  return std::min(static_cast<int>(end - results), most);
}

}  // namespace convtune::preload::serve

#include "client/preload/serve/workspace_limit.h"

#include <stdlib.h>

#include <algorithm>
#include <iterator>

#include "client/preload/process/counters.h"
#include "client/preload/process/descriptor.h"
#include "client/preload/report/problems.h"
#include "client/preload/shadow/engine_config.h"
#include "proto/model/tuning/errata_rules.h"

namespace convtune::preload::serve {
namespace {

// Whether the program's own list may have an engine that is known to be wrong.
bool HasErrata(const shadow::HeuristicsShadow& query, int engine = -1) {
  if (query.problem == nullptr) {
    return false;  // its device or its operation is not known
  }
  const snapshot::ProblemKey& key = query.problem->key;
  const snapshot::EnvironmentKey& device = query.problem->environment;
  return std::any_of(std::begin(kErrata), std::end(kErrata), [&](const Erratum& erratum) {
    return (engine < 0 || erratum.engine == engine) &&
           erratum.Concerns(static_cast<Operation>(key.operation), key.spatial_rank,
                            static_cast<int>(device.cudnn_version),
                            device.cc_major * 10 + device.cc_minor);
  });
}

void FindWithin(Bounds bounds, const shadow::HeuristicsShadow& query,
                cudnnBackendDescriptor_t heuristics, report::WithinLimit* within) {
  static_assert(report::WithinLimit::kMost == shadow::kMaxPlaces);
  process::Descriptors list(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, shadow::kMaxPlaces);
  const int count = shadow::ListConfigs(heuristics, &list);
  const int64_t limit = bounds.max_workspace;
  within->all = true;
  within->over = false;
  within->errata = false;
  within->count = 0;
  for (int i = 0; i < count; ++i) {
    const bool wrong = bounds.errata && IsErratum(query, list[i]);
    const int64_t workspace = limit < 0 ? 0 : shadow::ToldWorkspaceOf(query, list[i]);
    within->errata = within->errata || wrong;
    within->over = within->over || workspace > std::max<int64_t>(limit, 0);
    within->all = !within->over && !within->errata;
    if (!wrong && (limit < 0 || FitsInto(limit, workspace))) {
      within->places[within->count++] = static_cast<int16_t>(i);
    }
  }
  if (within->all || limit < 0) {
    return;
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
const report::WithinLimit& Within(Bounds bounds, const shadow::HeuristicsShadow& query, int mode,
                                  cudnnBackendDescriptor_t heuristics, report::WithinLimit* room) {
  const auto find = [&](report::WithinLimit* within) {
    FindWithin(bounds, query, heuristics, within);
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
void Cut(const report::WithinLimit& own, const report::WithinLimit& within,
         process::Descriptor* other, shadow::HeuristicsShadow* query) {
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
  if (own.over) {
    process::Count(&process::counters.limited);
  }
  if (own.errata) {
    process::Count(&process::counters.errata);
  }
}

}  // namespace

bool IsErratum(const shadow::HeuristicsShadow& query, cudnnBackendDescriptor_t config) {
  shadow::ConfigFacts facts;
  return shadow::ReadConfig(config, false, &facts) &&
         HasErrata(query, static_cast<int>(facts.engine_index));
}

void LimitList(Bounds bounds, cudnnBackendDescriptor_t heuristics,
               shadow::HeuristicsShadow* query) {
  bounds.errata = bounds.errata && HasErrata(*query);
  if (bounds.max_workspace < 0 && !bounds.errata) {
    return;
  }
  // What is cut already keeps to the bounds.
  if (query->served != nullptr && query->served->cut) {
    return;
  }
  report::WithinLimit own_room, room;
  const report::WithinLimit& own = Within(bounds, *query, query->mode, heuristics, &own_room);
  if (own.all) {
    return;
  }
  if (own.count > 0 || query->served != nullptr) {
    Cut(own, own, nullptr, query);
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
    const report::WithinLimit& within = Within(bounds, *query, mode, other.get(), &room);
    if (within.count > 0) {
      Cut(own, within, &other, query);
      return;
    }
  }
  process::Count(&process::counters.over_limit);
  // A limit that nothing keeps to leaves the other bound as it is.
  if (own.errata && bounds.max_workspace >= 0) {
    FindWithin({-1, true}, *query, heuristics, &room);
    if (room.count > 0) {
      Cut(room, room, nullptr, query);
    }
  }
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

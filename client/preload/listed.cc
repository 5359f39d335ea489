// What cuDNN's own list of a query has: the stock choice, a config without notes, those within
// the bounds.
#include <stdlib.h>

#include <algorithm>
#include <iterator>

#include "client/preload/counters.h"
#include "client/preload/engine_config.h"
#include "client/preload/problems.h"
#include "client/preload/serve.h"
#include "client/preload/state.h"
#include "proto/model/tuning/note_rules.h"

namespace convtune::preload {
namespace {

// Finds something out once for each problem and mode, since it takes a plan or a look at each
// config. Null for a query whose problem has no key, and without memory.
template <typename T, typename Find>
const T* OfMode(Once<T> (Problem::*slots)[kModes], const HeuristicsShadow& query, int mode,
                const Find& find) {
  if (query.problem == nullptr || mode < 0 || mode >= kModes) {
    return nullptr;
  }
  return (query.problem->*slots)[mode].Get([&](T* found) {
    find(found);
    return true;
  });
}

// Leaves `stock` unknown if it cannot be told.
void FindStock(const HeuristicsShadow& query, snapshot::StockChoice* stock) {
  // Engines that are listed and cannot be finalised come in small numbers.
  constexpr int kTried = 8;
  Descriptors list(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, kTried);
  const int count = ListConfigs(query.descriptor, &list);
  for (int i = 0; i < count; ++i) {
    const int64_t workspace = WorkspaceOf(query, list[i]);
    ConfigFacts facts;
    if (workspace >= 0 && ReadConfig(list[i], false, &facts)) {
      *stock = {1, facts.numerical_notes, facts.behavior_notes, 0, workspace};
      return;
    }
  }
}

// Whether `engine` is known to be wrong for the query; -1: whether any engine is.
bool HasErrata(const HeuristicsShadow& query, int engine = -1) {
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

// Whether the config is of an engine that is known to be wrong for the query.
bool IsErratum(const HeuristicsShadow& query, cudnnBackendDescriptor_t config) {
  ConfigFacts facts;
  return ReadConfig(config, false, &facts) &&
         HasErrata(query, static_cast<int>(facts.engine_index));
}

// Bounds on what a program is offered.
struct Bounds {
  int64_t max_workspace;  // bytes; negative: any
  bool errata;            // leave out the engines of kErrata
};

void FindWithin(Bounds bounds, const HeuristicsShadow& query, cudnnBackendDescriptor_t heuristics,
                WithinLimit* within) {
  Descriptors list(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, Descriptors::kMost);
  const int count = ListConfigs(heuristics, &list);
  const int64_t limit = bounds.max_workspace;
  within->over = false;
  within->errata = false;
  within->count = 0;
  for (int i = 0; i < count; ++i) {
    const bool wrong = bounds.errata && IsErratum(query, list[i]);
    const int64_t workspace = limit < 0 ? 0 : ToldWorkspaceOf(query, list[i]);
    within->errata = within->errata || wrong;
    within->over = within->over || workspace > std::max<int64_t>(limit, 0);
    if (!wrong && FitsInto(limit, workspace)) {
      within->places[within->count++] = static_cast<int16_t>(i);
    }
  }
  if (within->all() || limit < 0) {
    return;
  }
  // cuDNN tells the workspace of some configs of which no plan can be built. The list that
  // is offered begins with a config that can be built. If no config of this mode can be,
  // another mode's list may have one.
  int first = 0;
  while (first < within->count &&
         !FitsInto(limit, WorkspaceOf(query, list[within->places[first]]))) {
    ++first;
  }
  std::copy(within->places + first, within->places + within->count, within->places);
  within->count -= first;
}

// `room` is for queries whose problem has no key.
const WithinLimit& Within(Bounds bounds, const HeuristicsShadow& query, int mode,
                          cudnnBackendDescriptor_t heuristics, WithinLimit* room) {
  const auto find = [&](WithinLimit* within) { FindWithin(bounds, query, heuristics, within); };
  const WithinLimit* known = OfMode(&Problem::within, query, mode, find);
  if (known != nullptr) {
    return *known;
  }
  find(room);
  return *room;
}

// Cuts what the query gives to its stored configs and these, which are of its own list or, where
// it is not null, of that of `other`, which is taken over.
void Cut(const WithinLimit& own, const WithinLimit& within, Descriptors* other,
         HeuristicsShadow* query) {
  if (query->served == nullptr) {
    query->served = static_cast<Served*>(calloc(1, sizeof(Served)));
  }
  Served* served = query->served;
  if (served == nullptr) {
    return;
  }
  served->cut = true;
  served->other = other == nullptr ? nullptr : other->Release();
  served->place_count = within.count;
  std::copy_n(within.places, within.count, served->places);
  if (own.over) {
    Count(Counter::kLimited);
  }
  if (own.errata) {
    Count(Counter::kErrata);
  }
}

}  // namespace

bool StockOf(const HeuristicsShadow& query, snapshot::StockChoice* stock) {
  const snapshot::StockChoice& stored = query.problem->entry->stock;
  if ((query.mode == CUDNN_HEUR_MODE_A || query.mode == CUDNN_HEUR_MODE_INSTANT) &&
      stored.known != 0) {
    *stock = stored;
    return true;
  }
  const snapshot::StockChoice* found =
      OfMode(&Problem::stock, query, query.mode,
             [&](snapshot::StockChoice* choice) { FindStock(query, choice); });
  *stock = found != nullptr ? *found : snapshot::StockChoice{};
  return stock->known != 0;
}

int PlainConfig(const HeuristicsShadow& query) {
  const int* known = OfMode(&Problem::plain, query, query.mode, [&](int* place) {
    Descriptors list(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, Descriptors::kMost);
    const int count = ListConfigs(query.descriptor, &list);
    const Settings& settings = GetState().settings;
    const int64_t limit = settings.max_workspace;
    *place = -1;
    for (int i = 0; i < count; ++i) {
      ConfigFacts facts;
      if (ReadConfig(list[i], false, &facts) && KeepsNumerics(facts.numerical_notes, 0) &&
          !(settings.errata && HasErrata(query, static_cast<int>(facts.engine_index))) &&
          (limit < 0 || FitsInto(limit, ToldWorkspaceOf(query, list[i])))) {
        *place = i;
        if (query.mode != CUDNN_HEUR_MODE_FALLBACK) {
          break;
        }
      }
    }
  });
  return known != nullptr ? *known : -1;
}

void LimitList(const Settings& settings, HeuristicsShadow* query) {
  const Bounds bounds = {settings.max_workspace, settings.errata &&
                                                     settings.policy != Policy::kObserve &&
                                                     HasErrata(*query)};
  if (bounds.max_workspace < 0 && !bounds.errata) {
    return;
  }
  // What is cut already keeps to the bounds.
  if (query->served != nullptr && query->served->cut) {
    return;
  }
  WithinLimit own_room, room;
  const WithinLimit& own = Within(bounds, *query, query->mode, query->descriptor, &own_room);
  if (own.all()) {
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
    Descriptors other(MakeQuery(*query, mode));
    if (other.count() == 0) {
      continue;
    }
    const WithinLimit& within = Within(bounds, *query, mode, other[0], &room);
    if (within.count > 0) {
      Cut(own, within, &other, query);
      return;
    }
  }
  Count(Counter::kOverLimit);
  // A limit that nothing keeps to leaves the other bound as it is.
  if (own.errata && bounds.max_workspace >= 0) {
    FindWithin({-1, true}, *query, query->descriptor, &room);
    if (room.count > 0) {
      Cut(room, room, nullptr, query);
    }
  }
}

}  // namespace convtune::preload

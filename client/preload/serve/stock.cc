#include "client/preload/serve/stock.h"

#include "client/preload/report/problems.h"
#include "client/preload/serve/workspace_limit.h"
#include "client/preload/shadow/engine_config.h"
#include "client/preload/state/state.h"
#include "proto/model/tuning/note_rules.h"

namespace convtune::preload::serve {
namespace {

// Leaves `stock` unknown if it cannot be told. True: it is found out, then, too.
bool FindOut(cudnnBackendDescriptor_t heuristics, const shadow::HeuristicsShadow& query,
             snapshot::StockChoice* stock) {
  // Engines that are listed and cannot be finalised come in small numbers.
  constexpr int kTried = 8;
  process::Descriptors list(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, kTried);
  const int count = shadow::ListConfigs(heuristics, &list);
  for (int i = 0; i < count; ++i) {
    const int64_t workspace = shadow::WorkspaceOf(query, list[i]);
    shadow::ConfigFacts facts;
    if (workspace >= 0 && shadow::ReadConfig(list[i], false, &facts)) {
      *stock = {1, facts.numerical_notes, facts.behavior_notes, 0, workspace};
      break;
    }
  }
  return true;
}

}  // namespace

bool StockOf(cudnnBackendDescriptor_t heuristics, const shadow::HeuristicsShadow& query,
             snapshot::StockChoice* stock) {
  report::Problem* problem = query.problem;
  if (query.mode < 0 || query.mode >= report::kModes) {
    return false;
  }
  if (query.mode == CUDNN_HEUR_MODE_A || query.mode == CUDNN_HEUR_MODE_INSTANT) {
    *stock = problem->entry->stock;
    if (stock->known != 0) {
      return true;
    }
  }
  const snapshot::StockChoice* found = problem->stock[query.mode].Get(
      [&](snapshot::StockChoice* choice) { return FindOut(heuristics, query, choice); });
  *stock = found != nullptr ? *found : snapshot::StockChoice{};
  return stock->known != 0;
}

int PlainConfig(cudnnBackendDescriptor_t heuristics, const shadow::HeuristicsShadow& query) {
  if (query.mode < 0 || query.mode >= report::kModes) {
    return -1;
  }
  const int* known = query.problem->plain[query.mode].Get([&](int* place) {
    process::Descriptors list(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, shadow::kMaxPlaces);
    const int count = shadow::ListConfigs(heuristics, &list);
    const state::Settings& settings = state::GetState().settings;
    const int64_t limit = settings.max_workspace;
    *place = -1;
    for (int i = 0; i < count; ++i) {
      shadow::ConfigFacts facts;
      if (shadow::ReadConfig(list[i], false, &facts) && KeepsNumerics(facts.numerical_notes, 0) &&
          !(settings.errata && IsErratum(query, list[i])) &&
          (limit < 0 || FitsInto(limit, shadow::ToldWorkspaceOf(query, list[i])))) {
        *place = i;
        if (query.mode != CUDNN_HEUR_MODE_FALLBACK) {
          break;
        }
      }
    }
    return true;
  });
  return known != nullptr ? *known : -1;
}

}  // namespace convtune::preload::serve

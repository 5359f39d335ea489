#include "client/preload/serve/stock.h"

#include "client/preload/process/mutex.h"
#include "client/preload/report/problems.h"
#include "client/preload/serve/stock_list.h"
#include "client/preload/serve/workspace_limit.h"
#include "client/preload/shadow/engine_config.h"
#include "client/preload/state/state.h"
#include "proto/model/tuning/note_rules.h"

namespace convtune::preload::serve {
namespace {

constexpr int kUnasked = 0;
constexpr int kKnown = 1;
constexpr int kUnknown = 2;

bool FindOut(cudnnBackendDescriptor_t heuristics, const shadow::HeuristicsShadow& query,
             snapshot::StockChoice* stock) {
  // Engines that are listed and cannot be finalised come in small numbers.
  constexpr int kTried = 8;
  const StockList list(heuristics, kTried);
  for (int i = 0; i < list.count(); ++i) {
    const int64_t workspace = shadow::WorkspaceOf(query, list[i]);
    shadow::ConfigFacts facts;
    if (workspace >= 0 && shadow::ReadConfig(list[i], false, &facts)) {
      *stock = {1, facts.numerical_notes, facts.behavior_notes, 0, workspace};
      return true;
    }
  }
  return false;
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
  std::atomic<int>& state = problem->stock_state[query.mode];
  const int seen = state.load(std::memory_order_acquire);
  if (seen != kUnasked) {
    *stock = problem->stock[query.mode];
    return seen == kKnown;
  }
  const bool found = FindOut(heuristics, query, stock);
  // Two threads may find the same out; the first one keeps it.
  static process::Mutex mutex;
  const process::Locked locked(&mutex);
  if (state.load(std::memory_order_relaxed) == kUnasked) {
    problem->stock[query.mode] = *stock;
    state.store(found ? kKnown : kUnknown, std::memory_order_release);
  }
  return found;
}

int PlainConfig(cudnnBackendDescriptor_t heuristics, const shadow::HeuristicsShadow& query) {
  constexpr int kOffset = 2;
  if (query.mode < 0 || query.mode >= report::kModes) {
    return -1;
  }
  std::atomic<int>& known = query.problem->plain[query.mode];
  const int seen = known.load(std::memory_order_relaxed);
  if (seen != 0) {
    return seen - kOffset;
  }
  const StockList list(heuristics, StockList::kMost);
  const int64_t limit = state::GetState().settings.max_workspace;
  int place = -1;
  for (int i = 0; i < list.count(); ++i) {
    shadow::ConfigFacts facts;
    if (shadow::ReadConfig(list[i], false, &facts) && KeepsNumerics(facts.numerical_notes, 0) &&
        (limit < 0 || FitsInto(limit, shadow::ToldWorkspaceOf(query, list[i])))) {
      place = i;
      if (query.mode != CUDNN_HEUR_MODE_FALLBACK) {
        break;
      }
    }
  }
  known.store(place + kOffset, std::memory_order_relaxed);
  return place;
}

}  // namespace convtune::preload::serve

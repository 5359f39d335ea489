#include "client/preload/serve/serve.h"

#include <stdlib.h>

#include <algorithm>

#include "client/preload/process/counters.h"
#include "client/preload/process/descriptor.h"
#include "client/preload/process/device.h"
#include "client/preload/report/problems.h"
#include "client/preload/serve/stock.h"
#include "client/preload/serve/workspace_limit.h"
#include "client/preload/state/state.h"
#include "proto/model/tuning/note_rules.h"

namespace convtune::preload::serve {
namespace {

bool IsAllowed(const state::Settings& settings, const snapshot::SnapshotCandidate& candidate,
               const snapshot::StockChoice& stock) {
  return snapshot::IsNeutral(
      settings.allow_notes ? stock.numerical_notes : candidate.numerical_notes,
      settings.allow_workspace ? stock.workspace_bytes : candidate.workspace_bytes,
      stock.numerical_notes, stock.workspace_bytes);
}

// Of a stored candidate.
bool KeepsToLimit(const state::Settings& settings, const snapshot::SnapshotCandidate& candidate) {
  return settings.max_workspace < 0 || FitsInto(settings.max_workspace, candidate.workspace_bytes);
}

bool IsPlain(const snapshot::SnapshotCandidate& candidate) {
  return KeepsNumerics(candidate.numerical_notes, 0);
}

// Prepares a candidate at the end of the list. False if cuDNN refuses it.
bool Append(const state::State& state, const shadow::HeuristicsShadow& query,
            const snapshot::SnapshotCandidate& candidate, shadow::Served* served) {
  shadow::EngineSet* set = &served->sets[served->count];
  if (!shadow::MakeEngineSet(query, candidate, state.view.knobs(candidate), set)) {
    return false;
  }
  if (!shadow::Validate(*set)) {
    shadow::Destroy(set);
    return false;
  }
  ++served->count;
  return true;
}

// Puts the config at that place of cuDNN's own list behind the stored ones; none if it is negative.
void AddPlace(int place, shadow::Served* served) {
  if (place >= 0) {
    served->places[served->place_count++] = static_cast<int16_t>(place);
  }
}

// A program filters the list, and fails where nothing is left. So a cut list
// keeps, behind the winner, one config without numerical notes, if there is any.
void KeepPlainOne(const state::State& state, cudnnBackendDescriptor_t heuristics,
                  const shadow::HeuristicsShadow& query, const snapshot::SnapshotEntry& entry,
                  const snapshot::StockChoice& stock, shadow::Served* served) {
  const snapshot::SnapshotCandidate* candidates = state.view.candidates(entry);
  for (int i = 0; i < entry.candidate_count; ++i) {
    if (candidates[i].api == snapshot::kApiGraph && IsPlain(candidates[i]) &&
        KeepsToLimit(state.settings, candidates[i]) &&
        IsAllowed(state.settings, candidates[i], stock) &&
        Append(state, query, candidates[i], served)) {
      return;
    }
  }
  AddPlace(PlainConfig(heuristics, query), served);
}

// False with the reason if nothing can be served.
bool FillServed(const state::State& state, cudnnBackendDescriptor_t heuristics,
                const shadow::HeuristicsShadow& query, shadow::Served* served,
                snapshot::UnservedReason* reason) {
  const snapshot::SnapshotEntry& entry = *query.problem->entry;
  snapshot::StockChoice stock = {};
  *reason = snapshot::UnservedReason::kNotNeutral;
  const bool guarded = !(state.settings.allow_notes && state.settings.allow_workspace);
  if (guarded && !StockOf(heuristics, query, &stock)) {
    return false;
  }
  served->cut = state.settings.policy == state::Policy::kTruncate;
  const int most = served->cut ? 1 : shadow::kMaxServed;
  bool winner_is_plain = false;
  const snapshot::SnapshotCandidate* candidates = state.view.candidates(entry);
  for (int i = 0; i < entry.candidate_count && served->count < most; ++i) {
    if (candidates[i].api != snapshot::kApiGraph || !KeepsToLimit(state.settings, candidates[i]) ||
        (guarded && !IsAllowed(state.settings, candidates[i], stock))) {
      continue;
    }
    if (!Append(state, query, candidates[i], served)) {
      *reason = snapshot::UnservedReason::kRefused;
      continue;
    }
    winner_is_plain = winner_is_plain || (served->count == 1 && IsPlain(candidates[i]));
  }
  if (served->count == 0) {
    return false;
  }
  if (served->cut && !winner_is_plain) {
    KeepPlainOne(state, heuristics, query, entry, stock, served);
  }
  return true;
}

// PyTorch and cudnn-frontend ask for FALLBACK's list too and put it behind the
// other mode's, which has the winners already. A cut list is then one config:
// that of the engine of last resort, which has no notes.
shadow::Served* PrepareFallback(const state::State& state, cudnnBackendDescriptor_t heuristics,
                                const shadow::HeuristicsShadow& query) {
  if (state.settings.policy != state::Policy::kTruncate) {
    return nullptr;
  }
  const int place = PlainConfig(heuristics, query);
  auto* served =
      place < 0 ? nullptr : static_cast<shadow::Served*>(calloc(1, sizeof(shadow::Served)));
  if (served != nullptr) {
    served->cut = true;
    AddPlace(place, served);
  }
  return served;
}

// A query for FALLBACK's list behind one of another mode is no miss of its own: a program that asks
// for both asks about one convolution.
void CountUnserved(bool behind, report::Problem* problem, snapshot::UnservedReason reason) {
  if (behind) {
    process::Count(&process::counters.fallbacks);
  } else {
    report::NoteMiss(problem, reason);
  }
}

// Notes whose query the configs come from.
void Mark(cudnnBackendDescriptor_t config, report::Problem* problem, bool served) {
  shadow::Record* record = shadow::Find(config);
  if (record != nullptr && record->type == CUDNN_BACKEND_ENGINECFG_DESCRIPTOR) {
    record->plan.problem = problem;
    record->plan.served = served;
  }
}

cudnnStatus_t RealResults(cudnnBackendDescriptor_t heuristics, int64_t requested, int64_t* count,
                          cudnnBackendDescriptor_t* configs) {
  return process::Real().GetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                      CUDNN_TYPE_BACKEND_DESCRIPTOR, requested, count, configs);
}

// The first `count` of cuDNN's configs at the places of `served` into `configs`; those between them
// go into descriptors that are thrown away.
bool FillFromList(cudnnBackendDescriptor_t heuristics, const shadow::Served& served, int count,
                  cudnnBackendDescriptor_t* configs) {
  if (count == 0) {
    return true;
  }
  const int listed = served.places[count - 1] + 1;
  const process::Descriptors thrown_away(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, listed - count);
  if (thrown_away.count() < listed - count) {
    return false;
  }
  cudnnBackendDescriptor_t all[shadow::kMaxPlaces];
  int taken = 0;
  for (int place = 0; place < listed; ++place) {
    const bool wanted = served.places[taken] == place;
    all[place] = wanted ? configs[taken++] : thrown_away[place - taken];
  }
  int64_t got = 0;
  return RealResults(served.other != nullptr ? served.other : heuristics, listed, &got, all) ==
             CUDNN_STATUS_SUCCESS &&
         got >= listed;
}

// Looks the query's problem up and prepares what it gives.
void Serve(const state::State& state, cudnnBackendDescriptor_t heuristics,
           shadow::HeuristicsShadow* query) {
  shadow::GraphShadow& graph = query->graph;
  snapshot::EnvironmentKey environment = query->device.environment;
  const bool known =
      !query->odd && graph.known && !graph.odd && query->sm_count_target >= 0 &&
      query->sm_count_target <= 1024 &&
      (query->has_device ? query->device.known : process::CurrentEnvironment(&environment));
  if (!known) {
    process::Count(&process::counters.passed);
    return;
  }
  if (query->sm_count_target > 0) {
    graph.key.sm_count_target = static_cast<uint16_t>(query->sm_count_target);
    graph.hash = snapshot::HashOf(graph.key);
  }
  query->problem = report::FindProblem(environment, graph.key, graph.hash);
  if (query->problem == nullptr) {
    process::Count(&process::counters.passed);
    return;
  }
  process::Count(&process::counters.queries);
  const bool fallback = query->mode == CUDNN_HEUR_MODE_FALLBACK;
  const bool behind = fallback && query->problem->asked.load(std::memory_order_relaxed);
  if (!fallback) {
    query->problem->asked.store(true, std::memory_order_relaxed);
  }
  if (query->problem->entry == nullptr) {
    CountUnserved(behind, query->problem, query->problem->why);
    return;
  }
  if (state.settings.policy == state::Policy::kObserve || state::Killed(state)) {
    process::Count(behind ? &process::counters.fallbacks : &process::counters.observed);
    return;
  }
  if (fallback && query->problem->served.load(std::memory_order_relaxed)) {
    process::Count(&process::counters.fallbacks);
    query->served = PrepareFallback(state, heuristics, *query);
    return;
  }
  auto* served = static_cast<shadow::Served*>(calloc(1, sizeof(shadow::Served)));
  snapshot::UnservedReason reason = snapshot::UnservedReason::kRefused;
  if (served == nullptr || !FillServed(state, heuristics, *query, served, &reason)) {
    shadow::Release(served);
    CountUnserved(behind, query->problem, reason);
    return;
  }
  query->served = served;
  if (!fallback) {
    query->problem->served.store(true, std::memory_order_relaxed);
  }
  process::Count(&process::counters.served);
}

}  // namespace

void OnHeuristics(cudnnBackendDescriptor_t heuristics, shadow::HeuristicsShadow* query) {
  const state::State& state = state::GetState();
  Serve(state, heuristics, query);
  if (!state::Killed(state)) {
    LimitList({state.settings.max_workspace,
               state.settings.errata && state.settings.policy != state::Policy::kObserve},
              heuristics, query);
  }
}

bool GiveResults(cudnnBackendDescriptor_t heuristics, shadow::HeuristicsShadow* query,
                 int64_t requested, int64_t* count, cudnnBackendDescriptor_t* configs,
                 cudnnStatus_t* status) {
  // As cuDNN: without room for configs *count is of all, with room of those that were filled.
  const shadow::Served& served = *query->served;
  *status = CUDNN_STATUS_SUCCESS;
  if (configs == nullptr && count != nullptr) {
    int64_t behind = served.place_count;
    if (!served.cut) {
      *status = RealResults(heuristics, 0, &behind, nullptr);
    }
    *count = served.count + behind;
    return true;
  }
  if (configs == nullptr || requested < 0) {
    return false;  // cuDNN has the error
  }
  const int64_t given = std::min<int64_t>(requested, served.count);
  for (int64_t i = 0; i < given; ++i) {
    if (!shadow::FillConfig(served.sets[i], configs[i])) {
      return false;
    }
    Mark(configs[i], query->problem, true);
  }
  const int64_t left = requested - given;
  cudnnBackendDescriptor_t* behind = configs + given;
  int64_t filled = 0;
  if (served.cut) {
    filled = std::min<int64_t>(left, served.place_count);
    if (!FillFromList(heuristics, served, static_cast<int>(filled), behind)) {
      return false;
    }
  } else if (left > 0) {
    *status = RealResults(heuristics, left, &filled, behind);
    // Never more than there is room for, whatever a version of cuDNN counts.
    filled = *status == CUDNN_STATUS_SUCCESS ? std::clamp<int64_t>(filled, 0, left) : 0;
  }
  for (int64_t i = 0; i < filled; ++i) {
    Mark(behind[i], query->problem, false);
  }
  if (count != nullptr) {
    *count = given + filled;
  }
  return true;
}

void NoteResults(const shadow::HeuristicsShadow& query, int64_t requested, const int64_t* count,
                 const cudnnBackendDescriptor_t* configs) {
  for (int64_t i = 0; configs != nullptr && count != nullptr && i < requested && i < *count; ++i) {
    Mark(configs[i], query.problem, false);
  }
}

}  // namespace convtune::preload::serve

#include "client/preload/serve.h"

#include <stdlib.h>

#include <algorithm>

#include "client/preload/counters.h"
#include "client/preload/device.h"
#include "client/preload/engine_config.h"
#include "client/preload/problems.h"
#include "proto/model/tuning/note_rules.h"

namespace convtune::preload {
namespace {

bool IsAllowed(const Settings& settings, const snapshot::SnapshotCandidate& candidate,
               const snapshot::StockChoice& stock) {
  return snapshot::IsNeutral(
      settings.allow_notes ? stock.numerical_notes : candidate.numerical_notes,
      settings.allow_workspace ? stock.workspace_bytes : candidate.workspace_bytes,
      stock.numerical_notes, stock.workspace_bytes);
}

bool IsPlain(const snapshot::SnapshotCandidate& candidate) {
  return KeepsNumerics(candidate.numerical_notes, 0);
}

// Prepares the stored candidates that may be given until the list has `most`; with `plain` those
// without numerical notes alone. Returns the last candidate that it prepared; null if it prepared
// none, and then `reason` says whether cuDNN refused one.
const snapshot::SnapshotCandidate* AppendStored(const State& state, const HeuristicsShadow& query,
                                                const snapshot::StockChoice& stock, bool plain,
                                                int most, Served* served,
                                                snapshot::UnservedReason* reason) {
  const snapshot::SnapshotEntry& entry = *query.problem->entry;
  const snapshot::SnapshotCandidate* candidates = state.view.candidates(entry);
  const snapshot::SnapshotCandidate* last = nullptr;
  for (int i = 0; i < entry.candidate_count && served->count < most; ++i) {
    const snapshot::SnapshotCandidate& candidate = candidates[i];
    if (candidate.api != snapshot::kApiGraph || (plain && !IsPlain(candidate)) ||
        !FitsInto(state.settings.max_workspace, candidate.workspace_bytes) ||
        !IsAllowed(state.settings, candidate, stock)) {
      continue;
    }
    if (MakeEngineSet(query, candidate, state.view.knobs(candidate),
                      &served->sets[served->count])) {
      ++served->count;
      last = &candidate;
    } else {
      *reason = snapshot::UnservedReason::kRefused;
    }
  }
  return last;
}

// Puts the config at that place of cuDNN's own list behind the stored ones; none if it is negative.
void AddPlace(int place, Served* served) {
  if (place >= 0) {
    served->places[served->place_count++] = static_cast<int16_t>(place);
  }
}

// False with the reason if nothing can be served.
bool FillServed(const State& state, const HeuristicsShadow& query, Served* served,
                snapshot::UnservedReason* reason) {
  snapshot::StockChoice stock = {};
  *reason = snapshot::UnservedReason::kNotNeutral;
  const bool guarded = !(state.settings.allow_notes && state.settings.allow_workspace);
  if (guarded && !StockOf(query, &stock)) {
    return false;
  }
  served->cut = state.settings.policy == Policy::kTruncate;
  const int most = served->cut ? 1 : kMaxServed;
  const snapshot::SnapshotCandidate* last =
      AppendStored(state, query, stock, false, most, served, reason);
  // A program filters the list, and fails where nothing is left. So a cut list
  // keeps, behind the winner, one config without numerical notes, if there is any.
  if (served->cut && last != nullptr && !IsPlain(*last) &&
      AppendStored(state, query, stock, true, most + 1, served, reason) == nullptr) {
    AddPlace(PlainConfig(query), served);
  }
  return last != nullptr;
}

// PyTorch and cudnn-frontend ask for FALLBACK's list too and put it behind the
// other mode's, which has the winners already. A cut list is then one config:
// that of the engine of last resort, which has no notes.
Served* PrepareFallback(const State& state, const HeuristicsShadow& query) {
  if (state.settings.policy != Policy::kTruncate) {
    return nullptr;
  }
  const int place = PlainConfig(query);
  auto* served = place < 0 ? nullptr : static_cast<Served*>(calloc(1, sizeof(Served)));
  if (served != nullptr) {
    served->cut = true;
    AddPlace(place, served);
  }
  return served;
}

// A query for FALLBACK's list behind one of another mode is no miss of its own: a program that asks
// for both asks about one convolution.
void CountUnserved(bool behind, Problem* problem, snapshot::UnservedReason reason) {
  if (behind) {
    Count(Counter::kFallbacks);
  } else {
    NoteMiss(problem, reason);
  }
}

// Notes whose query the configs come from.
void Mark(cudnnBackendDescriptor_t config, Problem* problem, bool served) {
  Record* record = FindRecord(config);
  if (record != nullptr && record->type == CUDNN_BACKEND_ENGINECFG_DESCRIPTOR) {
    record->plan.problem = problem;
    record->plan.served = served;
  }
}

cudnnStatus_t RealResults(cudnnBackendDescriptor_t heuristics, int64_t requested, int64_t* count,
                          cudnnBackendDescriptor_t* configs) {
  return real_cudnn.GetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                 CUDNN_TYPE_BACKEND_DESCRIPTOR, requested, count, configs);
}

// The first `count` of cuDNN's configs at the places of `served` into `configs`; those between them
// go into descriptors that are thrown away.
bool FillFromList(cudnnBackendDescriptor_t heuristics, const Served& served, int count,
                  cudnnBackendDescriptor_t* configs) {
  if (count == 0) {
    return true;
  }
  const int listed = served.places[count - 1] + 1;
  const Descriptors thrown_away(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, listed - count);
  if (thrown_away.count() < listed - count) {
    return false;
  }
  cudnnBackendDescriptor_t all[Descriptors::kMost];
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
void Serve(const State& state, HeuristicsShadow* query) {
  GraphShadow& graph = query->graph;
  snapshot::EnvironmentKey environment = query->device.environment;
  const bool known = graph.known && query->sm_count_target >= 0 && query->sm_count_target <= 1024 &&
                     (query->has_device ? query->device.known : CurrentEnvironment(&environment));
  if (known) {
    graph.key.sm_count_target = static_cast<uint16_t>(query->sm_count_target);
  }
  query->problem = known ? FindProblem(environment, graph.key) : nullptr;
  if (query->problem == nullptr) {
    Count(Counter::kPassed);
    return;
  }
  Count(Counter::kQueries);
  const bool fallback = query->mode == CUDNN_HEUR_MODE_FALLBACK;
  const bool behind = fallback && query->problem->asked.load(std::memory_order_relaxed);
  if (!fallback) {
    query->problem->asked.store(true, std::memory_order_relaxed);
  }
  if (query->problem->entry == nullptr) {
    CountUnserved(behind, query->problem, query->problem->why);
    return;
  }
  if (state.settings.policy == Policy::kObserve || Killed(state)) {
    Count(behind ? Counter::kFallbacks : Counter::kObserved);
    return;
  }
  if (fallback && query->problem->served.load(std::memory_order_relaxed)) {
    Count(Counter::kFallbacks);
    query->served = PrepareFallback(state, *query);
    return;
  }
  auto* served = static_cast<Served*>(calloc(1, sizeof(Served)));
  snapshot::UnservedReason reason = snapshot::UnservedReason::kRefused;
  if (served == nullptr || !FillServed(state, *query, served, &reason)) {
    Release(served);
    CountUnserved(behind, query->problem, reason);
    return;
  }
  query->served = served;
  if (!fallback) {
    query->problem->served.store(true, std::memory_order_relaxed);
  }
  Count(Counter::kServed);
}

// False if that failed and cuDNN is to be asked as if nothing had been prepared.
bool GiveServed(const HeuristicsShadow& query, int64_t requested, int64_t* count,
                cudnnBackendDescriptor_t* configs, cudnnStatus_t* status) {
  // As cuDNN: without room for configs *count is of all, with room of those that were filled.
  const Served& served = *query.served;
  *status = CUDNN_STATUS_SUCCESS;
  if (configs == nullptr && count != nullptr) {
    int64_t behind = served.place_count;
    if (!served.cut) {
      *status = RealResults(query.descriptor, 0, &behind, nullptr);
    }
    *count = served.count + behind;
    return true;
  }
  if (configs == nullptr || requested < 0) {
    return false;  // cuDNN has the error
  }
  const int64_t given = std::min<int64_t>(requested, served.count);
  for (int64_t i = 0; i < given; ++i) {
    if (!FillConfig(served.sets[i], configs[i])) {
      return false;
    }
    Mark(configs[i], query.problem, true);
  }
  const int64_t left = requested - given;
  cudnnBackendDescriptor_t* behind = configs + given;
  int64_t filled = 0;
  if (served.cut) {
    filled = std::min<int64_t>(left, served.place_count);
    if (!FillFromList(query.descriptor, served, static_cast<int>(filled), behind)) {
      return false;
    }
  } else if (left > 0) {
    *status = RealResults(query.descriptor, left, &filled, behind);
    // Never more than there is room for, whatever a version of cuDNN counts.
    filled = *status == CUDNN_STATUS_SUCCESS ? std::clamp<int64_t>(filled, 0, left) : 0;
  }
  for (int64_t i = 0; i < filled; ++i) {
    Mark(behind[i], query.problem, false);
  }
  if (count != nullptr) {
    *count = given + filled;
  }
  return true;
}

}  // namespace

void OnHeuristics(Record* record) {
  HeuristicsShadow* query = &record->heuristics;
  query->descriptor = record->descriptor;
  query->graph.known = query->graph.known && !record->odd;
  const State& state = GetState();
  Serve(state, query);
  if (!Killed(state)) {
    LimitList(state.settings, query);
  }
}

cudnnStatus_t GiveResults(const Record& record, int64_t requested, int64_t* count,
                          cudnnBackendDescriptor_t* configs) {
  const HeuristicsShadow& query = record.heuristics;
  cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
  if (query.served != nullptr && GiveServed(query, requested, count, configs, &status)) {
    return status;
  }
  status = RealResults(record.descriptor, requested, count, configs);
  const bool known = status == CUDNN_STATUS_SUCCESS && query.problem != nullptr;
  for (int64_t i = 0;
       known && configs != nullptr && count != nullptr && i < requested && i < *count; ++i) {
    Mark(configs[i], query.problem, false);
  }
  return status;
}

}  // namespace convtune::preload

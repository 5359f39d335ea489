// Engine configs of cuDNN: made from a stored candidate, and read back.
#pragma once

#include <cudnn.h>

#include "client/preload/process/descriptor.h"
#include "client/preload/shadow/shadow.h"
#include "db/snapshot/snapshot.h"

namespace convtune::preload::shadow {

constexpr int kMaxKnobs = 64;

// An engine and its knob choices, finalised. Owns its descriptors.
struct EngineSet {
  cudnnBackendDescriptor_t engine;
  int choice_count;
  cudnnBackendDescriptor_t choices[kMaxKnobs];
};

void Destroy(EngineSet* set);

// Makes the candidate's engine and choices for the graph of a query. False, and
// nothing is left, if cuDNN refuses one.
bool MakeEngineSet(const HeuristicsShadow& query, const snapshot::SnapshotCandidate& candidate,
                   const snapshot::SnapshotKnob* knobs, EngineSet* set);

// Makes a created, not yet finalised engine config descriptor that of the set.
bool FillConfig(const EngineSet& set, cudnnBackendDescriptor_t config);

// True if cuDNN finalises a config of the set.
bool Validate(const EngineSet& set);

constexpr int kMaxServed = 3;

constexpr int kMaxPlaces = process::Descriptors::kMost;

// The list that a finalised heuristics descriptor returns instead of cuDNN's own:
// `count` stored configs, then cuDNN's list. If the list is cut, only the configs at
// `places` follow, which ascend.
struct Served {
  int count;
  bool cut;
  int place_count;
  int16_t places[kMaxPlaces];
  // A query of another mode whose list `places` are of; owned. Null: the
  // descriptor's own.
  cudnnBackendDescriptor_t other;
  EngineSet sets[kMaxServed];
};

void Release(Served* served);

// The facts about an engine config or a plan.
struct ConfigFacts {
  int64_t engine_index;
  uint32_t numerical_notes;
  uint32_t behavior_notes;
  int knob_count;
  snapshot::SnapshotKnob knobs[kMaxKnobs];  // ordered by type
};
bool ReadConfig(cudnnBackendDescriptor_t config, bool with_knobs, ConfigFacts* facts);

// Fills `configs`, which are engine configs, with the first ones of a finalised query's own list.
// Returns how many; 0 on an error, too.
int ListConfigs(cudnnBackendDescriptor_t heuristics, process::Descriptors* configs);

// A finalised query for the same graph and device in another mode, which is the
// caller's to destroy; null if cuDNN refuses it.
cudnnBackendDescriptor_t MakeQuery(const HeuristicsShadow& query, cudnnBackendHeurMode_t mode);

// Finalises a plan of the config for the query's device and asks for its
// workspace; -1 if it cannot be built.
int64_t WorkspaceOf(const HeuristicsShadow& query, cudnnBackendDescriptor_t config);
// The same without a plan where cuDNN tells the workspace of a config.
int64_t ToldWorkspaceOf(const HeuristicsShadow& query, cudnnBackendDescriptor_t config);

}  // namespace convtune::preload::shadow

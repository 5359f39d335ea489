// Keeps the distinct problems that this process asked about, and tells the daemon of them in
// datagrams, which never block and are dropped when nobody listens.
#pragma once

#include <cudnn.h>
#include <stdint.h>

#include <atomic>

#include "client/preload/engine_config.h"
#include "client/preload/once.h"
#include "client/preload/shadow.h"
#include "db/snapshot/datagram.h"
#include "db/snapshot/snapshot.h"

namespace convtune::preload {

// The configs of cuDNN's list in one mode that may be offered: their places in that list.
struct WithinLimit {
  bool over;    // one that is left out needs more than the limit on the workspace
  bool errata;  // one that is left out is known to be wrong
  int count;    // that may be offered
  int16_t places[Descriptors::kMost];

  // True if nothing is left out; also where cuDNN does not tell its list.
  bool all() const { return !over && !errata; }
};

constexpr int kModes = 4;  // those of cudnnBackendHeurMode_t are below

// A problem that the program asked about. Lives as long as the process.
struct Problem {
  Problem* next;
  snapshot::EnvironmentKey environment;
  snapshot::ProblemKey key;
  uint64_t hash;
  const snapshot::SnapshotEntry* entry;  // null: a miss
  snapshot::UnservedReason why;          // of a miss
  std::atomic<uint32_t> misses;
  std::atomic<uint32_t> plans_built;
  std::atomic<uint32_t> plans_run;  // distinct plans that were executed
  std::atomic<bool> asked;          // by a query of another mode than FALLBACK
  std::atomic<bool> served;         // to a query of another mode than FALLBACK
  std::atomic<bool> plan_told;
  std::atomic<bool> legacy_told;
  // For each mode: the stock choice where the snapshot lacks it; what PlainConfig gives; and the
  // configs within the bounds.
  Once<snapshot::StockChoice> stock[kModes];
  Once<int> plain[kModes];
  Once<WithinLimit> within[kModes];
};

// Finds the problem or makes it, looking it up in the snapshot. Null without memory, and for those
// beyond the 65,536 that a process may have at most, which are left alone. Thread-safe.
Problem* FindProblem(const snapshot::EnvironmentKey& environment, const snapshot::ProblemKey& key);

// Counts a miss and tells the daemon of the first, second, fourth ... one.
void NoteMiss(Problem* problem, snapshot::UnservedReason reason);

// Tells the daemon what a search of the program measured. The datagram's header is filled in here.
void TellLegacy(const Problem& problem, snapshot::ObservedLegacyDatagram* datagram);

// After cuDNN finalised a plan.
void OnPlanFinalized(PlanShadow* plan);
// After cuDNN executed a plan, or recorded it into the CUDA graph that its handle's stream is
// captured into: what is captured did not run, and is counted by itself. Where a program has run at
// least two plans of a problem and keeps to one that was not served, or captures it, the daemon is
// told of it, once.
void OnExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t descriptor, PlanShadow* plan);

}  // namespace convtune::preload

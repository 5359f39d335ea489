#include "client/preload/report/problems.h"

#include <stdlib.h>

#include "client/preload/process/counters.h"
#include "client/preload/process/mutex.h"
#include "client/preload/report/report.h"
#include "client/preload/state/state.h"

namespace convtune::preload::report {
namespace {

constexpr size_t kBuckets = 16384;
constexpr uint64_t kMaxProblems = 65536;

// A chain only ever grows at its head, so that reading takes no lock.
constinit std::atomic<Problem*> buckets[kBuckets];
constinit std::atomic<uint64_t> problem_count;
constinit process::Mutex mutex;

Problem* Search(Problem* chain, const snapshot::EnvironmentKey& environment,
                const snapshot::ProblemKey& key, uint64_t hash) {
  for (Problem* problem = chain; problem != nullptr; problem = problem->next) {
    if (problem->hash == hash && problem->key.alignment == key.alignment &&
        snapshot::SameButAlignment(problem->key, key) && problem->environment == environment) {
      return problem;
    }
  }
  return nullptr;
}

}  // namespace

Problem* FindProblem(const snapshot::EnvironmentKey& environment, const snapshot::ProblemKey& key,
                     uint64_t hash) {
  std::atomic<Problem*>& bucket = buckets[hash % kBuckets];
  Problem* found = Search(bucket.load(std::memory_order_acquire), environment, key, hash);
  if (found != nullptr) {
    return found;
  }
  const state::State& state = state::GetState();
  const process::Locked locked(&mutex);
  Problem* head = bucket.load(std::memory_order_relaxed);
  found = Search(head, environment, key, hash);
  if (found != nullptr || problem_count.load(std::memory_order_relaxed) >= kMaxProblems) {
    return found;
  }
  auto* problem = static_cast<Problem*>(calloc(1, sizeof(Problem)));
  if (problem == nullptr) {
    return nullptr;
  }
  problem->environment = environment;
  problem->key = key;
  problem->hash = hash;
  problem->why = snapshot::UnservedReason::kNoSnapshot;
  if (state.has_snapshot) {
    bool environment_known = false;
    problem->entry = state::LookUp(state, environment, key, hash, &environment_known);
    problem->why = environment_known ? snapshot::UnservedReason::kNoEntry
                                     : snapshot::UnservedReason::kNoEnvironment;
  }
  problem->next = head;
  problem_count.fetch_add(1, std::memory_order_relaxed);
  process::Count(&process::counters.problems);
  bucket.store(problem, std::memory_order_release);
  return problem;
}

void NoteMiss(Problem* problem, snapshot::UnservedReason reason) {
  process::CountMiss(reason);
  const uint32_t count = problem->misses.fetch_add(1, std::memory_order_relaxed) + 1;
  if ((count & (count - 1)) == 0) {
    const uint32_t before = problem->missed_sent.exchange(count, std::memory_order_relaxed);
    TellMiss(*problem, reason, count > before ? count - before : 1);
  }
}

}  // namespace convtune::preload::report

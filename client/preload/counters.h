// Counters of the interposed calls of this process, for people.
#pragma once

#include <stdint.h>

#include <atomic>
#include <iterator>

#include "db/snapshot/datagram.h"

namespace convtune::preload {

// In the order of kCounterNames.
enum class Counter {
  kProblems,     // distinct
  kQueries,      // heuristics asked for a known form
  kServed,       // queries that got stored winners
  kObserved,     // queries of a stored problem, left alone by the policy or the kill switch
  kFallbacks,    // queries for FALLBACK's list, not counted again: one in another mode was before
  kPassed,       // heuristics asked for anything else
  kLimited,      // of whose list the limit on the workspace left something out
  kOverLimit,    // which stayed as it was, since nothing that can be built keeps to the limit
  kErrata,       // of whose list an engine that is known to be wrong was left out
  kPlans,        // finalised by the program
  kPlansServed,  // of a stored winner
  kPlansOwn,     // that we built to know the stock choice, or what keeps to the limit
  kExecutions,   // of plans whose problem is known
  kExecutionsServed,
  kCaptured,  // of those plans, recorded into a CUDA graph instead
  kCapturedServed,
  kLegacyCalls,  // Find, FindEx, Get_v7
  kLegacyServed,
  kLearned,    // observations that were sent
  kDatagrams,  // sent
  kDropped,    // could not be sent
};
inline constexpr const char* kCounterNames[] = {
    "problems",        "queries",           "served",
    "observed",        "fallbacks",         "passed",
    "limited",         "over_limit",        "errata",
    "plans",           "plans_served",      "plans_own",
    "executions",      "executions_served", "captured",
    "captured_served", "legacy_calls",      "legacy_served",
    "learned",         "datagrams",         "dropped"};

extern std::atomic<uint64_t> counters[std::size(kCounterNames)];
// The program looked hooked functions up by dlsym. It stays true in a forked child, which has the
// functions that its parent found.
extern std::atomic<bool> looked_up;

inline void Count(Counter counter) {
  counters[static_cast<int>(counter)].fetch_add(1, std::memory_order_relaxed);
}

void CountMiss(snapshot::UnservedReason reason);

// Appends one line of JSON to the file: one line per process. "%p" in the path
// is the process id. Errors are not reported.
void WriteCounters(const char* path, const char* policy, const char* snapshot, uint64_t release);

// The same for a process that loaded cuDNN and called none of its functions through a hook.
void WriteBypassed(const char* path);

// In a forked child, whose counts begin anew.
void ResetCounters();

}  // namespace convtune::preload

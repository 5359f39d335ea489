// Counters of the interposed calls of this process, for people.
#pragma once

#include <stdint.h>

#include <atomic>
#include <iterator>

#include "db/snapshot/datagram.h"

namespace convtune::preload::process {

struct Counters {
  std::atomic<uint64_t> queries;   // heuristics asked for a known form
  std::atomic<uint64_t> passed;    // heuristics asked for anything else
  std::atomic<uint64_t> served;    // queries that got stored winners
  std::atomic<uint64_t> observed;  // known, and left alone by the policy
  // FALLBACK asked behind a query of another mode: a part of that one.
  std::atomic<uint64_t> fallbacks;
  // Of which the limit on the workspace left out a part of cuDNN's list; and those of which nothing
  // that can be built keeps to it.
  std::atomic<uint64_t> limited;
  std::atomic<uint64_t> over_limit;
  std::atomic<uint64_t> errata;  // of whose list an engine that is known to be wrong was left out
  std::atomic<uint64_t> missed[std::size(snapshot::kUnservedReasons)];  // [0] is not used
  std::atomic<uint64_t> problems;                                       // distinct
  std::atomic<uint64_t> plans;                                          // finalised by the program
  std::atomic<uint64_t> plans_served;                                   // of a stored winner
  std::atomic<uint64_t> plans_own;   // that we built to know the stock choice
  std::atomic<uint64_t> executions;  // of plans whose problem is known
  std::atomic<uint64_t> executions_served;
  std::atomic<uint64_t> captured;  // of those plans, recorded into a CUDA graph instead
  std::atomic<uint64_t> captured_served;
  std::atomic<uint64_t> legacy_calls;  // Find, FindEx, Get_v7
  std::atomic<uint64_t> legacy_served;
  std::atomic<uint64_t> learned;    // observations that were sent
  std::atomic<uint64_t> datagrams;  // sent
  std::atomic<uint64_t> dropped;    // could not be sent
};

extern Counters counters;
// The program looked hooked functions up by dlsym; a forked child has what it found.
extern std::atomic<bool> looked_up;

inline void Count(std::atomic<uint64_t>* counter) {
  counter->fetch_add(1, std::memory_order_relaxed);
}

void CountMiss(snapshot::UnservedReason reason);

// Appends one line of JSON to the file: one line per process. "%p" in the path
// is the process id. Errors are not reported.
void WriteCounters(const char* path, const char* policy, const char* snapshot, uint64_t release);

// The same for a process that loaded cuDNN and called none of its functions through a hook.
void WriteBypassed(const char* path);

// In a forked child, whose counts begin anew.
void ResetCounters();

}  // namespace convtune::preload::process

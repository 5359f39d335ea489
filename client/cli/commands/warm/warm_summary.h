// A WarmSummary counts what `convtune warm` found and did.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "absl/time/time.h"
#include "convtune/v1/tuning_service.pb.h"

namespace convtune::cli {

// Value type.
struct WarmSummary {
  std::string environment;
  int64_t problems = 0;  // distinct ones
  int64_t hits = 0;      // had an answer before
  int64_t tuned = 0;     // have one now
  // Those that have none, by reason: how many and the first one.
  struct Failure {
    int64_t count = 0;
    std::string example;
  };
  std::map<std::string, Failure> failures;
  // What the daemon's own records say that finding the answers took, and of how
  // many problems: what a restart does not have to spend again.
  absl::Duration search_time;
  int64_t search_time_of = 0;

  int64_t failed() const { return problems - hits - tuned; }
  bool warm() const { return failed() == 0; }
  // A few lines for people.
  std::string ToText() const;
  // The document of --json.
  std::string ToJson() const;
};

// True if the outcome counts as warm: an answer with at least `least` evidence.
// `least` UNSPECIFIED is INCOMPLETE, for a profile HEURISTIC.
bool IsWarm(const v1::BatchGetResult& result, v1::Evidence least, bool profile);

// Why an outcome is not warm, in words.
std::string ColdReason(const v1::BatchGetResult& result);

}  // namespace convtune::cli

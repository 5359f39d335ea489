// A WarmSummary counts what `convtune warm` found and did.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "client/cli/output/value.h"
#include "convtune/v1/tuning_service.pb.h"

namespace convtune::cli::commands::warm {

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
  // Answers that are in the daemon's memory alone.
  int64_t not_on_disk = 0;
  // Answers with less evidence than the daemon publishes, by their evidence: without the daemon
  // nothing is served for them.
  std::map<v1::Evidence, int64_t> not_published;
  v1::Evidence publish_evidence = v1::EVIDENCE_UNSPECIFIED;
  // Text forms of those that the end of the total budget left out, in the order
  // in which they would have been tuned. They are failures too.
  std::vector<std::string> not_tuned;
  // Rows of the lists, and models, that hold no problem; each was said.
  int64_t invalid = 0;

  int64_t failed() const { return problems - hits - tuned; }
  bool warm() const { return failed() == 0 && invalid == 0 && not_on_disk == 0; }
  int64_t not_published_count() const;
  // A few lines for people.
  std::string ToText() const;
  // The document of --json.
  output::Members ToDocument() const;
};

// True if the outcome counts as warm: an answer with at least `least` evidence.
// `least` UNSPECIFIED is INCOMPLETE, for a profile HEURISTIC.
bool IsWarm(const v1::BatchGetResult& result, v1::Evidence least, bool profile);

// Says in words why an outcome is not warm.
std::string ColdReason(const v1::BatchGetResult& result);

}  // namespace convtune::cli::commands::warm

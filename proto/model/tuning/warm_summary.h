// A WarmSummary counts which problems of a model have an answer, for `convtune warm` and
// `convtuned --once`.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "proto/model/enums.h"

namespace convtune {

// The least evidence that counts as tuned where nobody asks for more or less: on a
// profile nothing can be measured.
constexpr Evidence LeastTunedEvidence(bool profile) {
  return profile ? Evidence::kHeuristic : Evidence::kIncomplete;
}

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
  std::map<Evidence, int64_t> not_published;
  Evidence publish_evidence = Evidence::kNone;
  // Files, and rows of lists, that hold no problem; each was reported before.
  int64_t invalid = 0;

  // Counts one more problem that has no answer for this reason.
  void AddFailure(const std::string& reason, const std::string& problem);
  // Counts what the daemon does not keep, or does not publish, of an answer that is counted
  // as a hit or as tuned. `stands_in`: it is in memory on purpose.
  void AddUnkept(Evidence evidence, bool pinned, bool persisted, bool stands_in);

  int64_t failed() const { return problems - hits - tuned; }
  bool warm() const { return failed() == 0 && invalid == 0 && not_on_disk == 0; }
  int64_t not_published_count() const;
  // A few lines for people.
  std::string ToText() const;
  // The last line for people: whether the model is warm.
  std::string Verdict() const;
};

}  // namespace convtune

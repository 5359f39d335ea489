// Snapshots that tests of clients publish.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "db/snapshot/snapshot_writer.h"

namespace convtune::client {

inline constexpr char kPublished[] = "fwd,x=8x64x56x56,w=64x64x3x3,pad=1,nhwc,f16";

inline convtune::Candidate CandidateOf(const std::string& id, double us, int64_t workspace,
                                       uint32_t notes = 0) {
  convtune::Candidate candidate;
  candidate.id = ParseCandidateId(id).value();
  candidate.median_us = us;
  candidate.workspace_bytes = workspace;
  candidate.numerical_notes = notes;
  return candidate;
}

// Of a problem: the second is the slowest and takes no workspace, the last the fastest.
inline snapshot::SnapshotChoice ThreeChoices(const std::string& problem = kPublished) {
  snapshot::SnapshotChoice choice(ConvProblem::Parse(problem).value());
  choice.evidence = convtune::Evidence::kMeasured;
  choice.candidates = {
      CandidateOf("graph:eng5,k2=1", 10, 4096, NoteBit(NumericalNote::kNondeterministic)),
      CandidateOf("graph:eng7", 12, 0), CandidateOf("legacy:algo1,math1", 9, 64)};
  return choice;
}

// "a" or "a 9.12.0", a model and a cuDNN.
inline convtune::Environment EnvironmentOf(const std::string& words) {
  const size_t space = words.find(' ');
  const std::string cudnn = space == std::string::npos ? "9.19.0" : words.substr(space + 1);
  return convtune::Environment::Parse(words.substr(0, space) + ",cc=9.0,sms=132,cudnn=" + cudnn +
                                      ",lib=full")
      .value();
}

// For these environments, named as EnvironmentOf reads them.
inline void Publish(const std::string& folder, const std::vector<std::string>& models,
                    const snapshot::SnapshotChoice& choice) {
  snapshot::SnapshotWriter writer({});
  for (const std::string& model : models) {
    ASSERT_TRUE(writer.Add(EnvironmentOf(model), snapshot::Channel::kStable, choice).ok());
  }
  ASSERT_TRUE(writer.Write(folder + "/current.snapshot").ok());
}

}  // namespace convtune::client

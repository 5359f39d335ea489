#include "proto/model/tuning/candidate.h"

#include <gtest/gtest.h>

#include <map>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "tests/unit/rule_cases.h"

namespace convtune {
namespace {

bool Allows(const Constraints& constraints, const Candidate& candidate) {
  return Satisfies(candidate, constraints, DataType::kF32);
}

// A case of the table.
Candidate CandidateOf(const std::vector<std::string>& row) {
  Candidate candidate;
  candidate.id = ParseCandidateId(row[0]).value();
  candidate.workspace_bytes = std::stoll(row[3]);
  for (const std::string& note : std::vector<std::string>(absl::StrSplit(row[2], ','))) {
    for (int i = 1; i <= static_cast<int>(NumericalNote::kStrictNanProp); ++i) {
      const auto numerical = static_cast<NumericalNote>(i);
      if (Name(numerical) == note) candidate.numerical_notes |= NoteBit(numerical);
    }
    for (int i = 1; i <= static_cast<int>(BehaviorNote::kCublasLtDependency); ++i) {
      const auto behavior = static_cast<BehaviorNote>(i);
      if (Name(behavior) == note) candidate.behavior_notes |= NoteBit(behavior);
    }
  }
  return candidate;
}

Constraints ConstraintsOf(const std::string& text) {
  Constraints constraints;
  const std::pair<std::string, std::string> parts = absl::StrSplit(text, absl::MaxSplits('=', 1));
  const auto& [name, value] = parts;
  const std::map<std::string, bool Constraints::*> flags = {
      {"deterministic", &Constraints::deterministic},
      {"forbid_tf32", &Constraints::forbid_tf32},
      {"forbid_down_convert", &Constraints::forbid_down_convert},
      {"forbid_winograd", &Constraints::forbid_winograd},
      {"forbid_fft", &Constraints::forbid_fft},
      {"forbid_reduced_precision_reduction", &Constraints::forbid_reduced_precision_reduction}};
  if (const auto flag = flags.find(name); flag != flags.end()) {
    constraints.*flag->second = true;
  } else if (name == "max_workspace_bytes") {
    constraints.max_workspace_bytes = std::stoll(value);
  } else if (name == "max_error") {
    constraints.max_error = std::stod(value);
  } else if (name == "api") {
    constraints.api = value == "any" ? Api::kAny : value == "graph" ? Api::kGraph : Api::kLegacy;
  } else if (name == "launch") {
    constraints.launch = value == "eager" ? LaunchMode::kEager : LaunchMode::kGraphCapture;
  } else {
    EXPECT_EQ(name, "-");
  }
  return constraints;
}

TEST(ConstraintsTest, AreSatisfiedAsInTheTable) {
  for (const std::vector<std::string>& row : RuleCases("constraints.txt")) {
    EXPECT_EQ(Satisfies(CandidateOf(row), ConstraintsOf(row[4]), ParseDataType(row[1]).value()),
              row[5] == "yes")
        << absl::StrJoin(row, " ");
  }
}

TEST(ConstraintsTest, WhatDidNotRunIsNoAnswer) {
  Candidate candidate;
  for (int status = 1; status <= 8; ++status) {
    candidate.status = static_cast<CandidateStatus>(status);
    const bool ran = candidate.status == CandidateStatus::kFinalized || candidate.timed();
    EXPECT_EQ(Allows({}, candidate), ran) << Name(candidate.status);
  }
}

TEST(ConstraintsTest, WhatWasTriedCountsMoreForCaptureThanTheNote) {
  Candidate candidate;
  candidate.capture = CaptureSupport::kYes;
  EXPECT_TRUE(Allows({.launch = LaunchMode::kGraphCapture}, candidate));
  candidate.capture = CaptureSupport::kNo;
  candidate.behavior_notes = NoteBit(BehaviorNote::kSupportsCudaGraphNativeApi);
  EXPECT_FALSE(Allows({.launch = LaunchMode::kGraphCapture}, candidate));
  EXPECT_TRUE(Allows({.launch = LaunchMode::kEager}, candidate));
}

TEST(ConstraintsTest, TheErrorLimitIsInclusiveAndNeedsAComparison) {
  Candidate candidate;
  EXPECT_FALSE(Allows({.max_error = 1.0}, candidate));
  candidate.error = 0.25;
  EXPECT_TRUE(Allows({.max_error = 0.25}, candidate));
  EXPECT_FALSE(Allows({.max_error = 0.125}, candidate));
}

TEST(ConstraintsTest, TheErrorLimitIsInclusiveForAnErrorThatARecordRounded) {
  for (const double error : {0.0012, 0.0013, 0.1, 1e-7}) {
    Candidate candidate;
    for (const double kept : {error, static_cast<double>(static_cast<float>(error))}) {
      candidate.error = kept;
      EXPECT_TRUE(Allows({.max_error = error}, candidate)) << kept;
      EXPECT_FALSE(Allows({.max_error = error * 0.999}, candidate)) << kept;
    }
  }
}

}  // namespace
}  // namespace convtune

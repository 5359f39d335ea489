#include "proto/model/tuning/candidate.h"

#include <gtest/gtest.h>

#include <map>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "tests/unit/rule_cases.h"

namespace convtune {
namespace {

Candidate WithNote(NumericalNote note) {
  Candidate candidate;
  candidate.numerical_notes = NoteBit(note);
  return candidate;
}

bool Allows(const Constraints& constraints, const Candidate& candidate,
            DataType type = DataType::kF32) {
  return Satisfies(candidate, constraints, type);
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

TEST(ConstraintsTest, NoneAllowAllThatRan) {
  Candidate candidate;
  candidate.workspace_bytes = int64_t{1} << 40;
  candidate.numerical_notes = ~0U;
  EXPECT_TRUE(Allows({}, candidate));
  candidate.status = CandidateStatus::kTimed;
  EXPECT_TRUE(Allows({}, candidate));
}

TEST(ConstraintsTest, WhatDidNotRunIsNoAnswer) {
  Candidate candidate;
  for (int status = 3; status <= 7; ++status) {
    candidate.status = static_cast<CandidateStatus>(status);
    EXPECT_FALSE(Allows({}, candidate)) << Name(candidate.status);
  }
}

TEST(ConstraintsTest, TheWorkspaceLimitIsInclusive) {
  Candidate candidate;
  candidate.workspace_bytes = 1024;
  EXPECT_TRUE(Allows({.max_workspace_bytes = 1024}, candidate));
  EXPECT_FALSE(Allows({.max_workspace_bytes = 1023}, candidate));
  EXPECT_FALSE(Allows({.max_workspace_bytes = 0}, candidate));
  candidate.workspace_bytes = 0;
  EXPECT_TRUE(Allows({.max_workspace_bytes = 0}, candidate));
}

TEST(ConstraintsTest, DeterminismIsTheCandidates) {
  Candidate candidate;
  EXPECT_TRUE(Allows({.deterministic = true}, candidate));
  candidate.numerical_notes = NoteBit(NumericalNote::kNondeterministic);
  EXPECT_FALSE(Allows({.deterministic = true}, candidate));
}

TEST(ConstraintsTest, Tf32IsTensorCoresOnF32Inputs) {
  const Constraints no_tf32 = {.forbid_tf32 = true};
  EXPECT_FALSE(Allows(no_tf32, WithNote(NumericalNote::kTensorCore)));
  EXPECT_FALSE(Allows(no_tf32, WithNote(NumericalNote::kDownConvertInputs)));
  EXPECT_TRUE(Allows(no_tf32, WithNote(NumericalNote::kTensorCore), DataType::kF16));
  EXPECT_TRUE(Allows(no_tf32, WithNote(NumericalNote::kFft)));
}

TEST(ConstraintsTest, EachNoteHasItsConstraint) {
  EXPECT_FALSE(Allows({.forbid_down_convert = true}, WithNote(NumericalNote::kDownConvertInputs)));
  EXPECT_FALSE(Allows({.forbid_fft = true}, WithNote(NumericalNote::kFft)));
  EXPECT_FALSE(Allows({.forbid_reduced_precision_reduction = true},
                      WithNote(NumericalNote::kReducedPrecisionReduction)));
  for (const NumericalNote note :
       {NumericalNote::kWinograd, NumericalNote::kWinogradTile4x4, NumericalNote::kWinogradTile6x6,
        NumericalNote::kWinogradTile13x13}) {
    EXPECT_FALSE(Allows({.forbid_winograd = true}, WithNote(note))) << Name(note);
    EXPECT_TRUE(Allows({.forbid_fft = true}, WithNote(note))) << Name(note);
  }
}

TEST(ConstraintsTest, TheApiMustFit) {
  Candidate graph;
  Candidate legacy;
  legacy.id = LegacyAlgorithm{1, 0};
  EXPECT_TRUE(Allows({.api = Api::kGraph}, graph));
  EXPECT_FALSE(Allows({.api = Api::kGraph}, legacy));
  EXPECT_FALSE(Allows({.api = Api::kLegacy}, graph));
  EXPECT_TRUE(Allows({.api = Api::kLegacy}, legacy));
}

TEST(ConstraintsTest, GraphCaptureNeedsTheNativeGraphApi) {
  Candidate candidate;
  EXPECT_FALSE(Allows({.launch = LaunchMode::kGraphCapture}, candidate));
  candidate.behavior_notes = NoteBit(BehaviorNote::kSupportsCudaGraphNativeApi);
  EXPECT_TRUE(Allows({.launch = LaunchMode::kGraphCapture}, candidate));
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

#include "client/cli/commands/upgrade/upgrade_changes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/convert/record_codec.h"
#include "tests/unit/cli/fake_daemon.h"

namespace convtune::cli::commands {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

upgrade::AskedProblem Asked(const std::string& winner = "") {
  return {ConvProblem::Parse("fwd,x=8x64x56x56,w=64x64x3x3,pad=1,nhwc,f16").value(), 3, winner};
}

Candidate Make(const std::string& text, int64_t workspace = 0, uint32_t numerical_notes = 0) {
  Candidate candidate;
  candidate.id = ParseCandidateId(text).value();
  candidate.workspace_bytes = workspace;
  candidate.numerical_notes = numerical_notes;
  return candidate;
}

// The first can be built.
upgrade::ListedProblem Lists(const std::vector<Candidate>& candidates) {
  upgrade::ListedProblem listed;
  for (const Candidate& candidate : candidates) {
    Fill(candidate, Operation::kFwd, listed.tuning.add_candidates());
  }
  return listed;
}

upgrade::UpgradeChange Compare(const upgrade::AskedProblem& asked,
                               const upgrade::ListedProblem& from, const upgrade::ListedProblem& to,
                               const std::string& gpu = "nvidia-h200,cc=9.0,sms=132") {
  return upgrade::CompareListings(asked, from, to, gpu + ",cudnn=9.23.1,lib=full");
}

// The document of these changes.
std::string Print(const std::vector<upgrade::UpgradeChange>& changes) {
  TestIo test;
  app::Context context(test.io, {}, app::Format::kJson);
  upgrade::PrintUpgrade(context, {{"nvidia-h200", "9.19.0", "9.23.1", changes}}, /*all=*/false);
  return test.out.str();
}

TEST(CompareListingsTest, AFirstChoiceThatIsKnownToBeWrongIsToldEvenIfItIsNoOther) {
  const upgrade::ListedProblem bad = Lists({Make("graph:eng5"), Make("graph:eng6")});
  const upgrade::UpgradeChange change = Compare(Asked(), bad, bad, "nvidia-a2,cc=8.6,sms=10");
  EXPECT_THAT(change.erratum, testing::StartsWith("shipped/1 ("));
  EXPECT_TRUE(change.any());
  EXPECT_TRUE(change.has_erratum());
  EXPECT_EQ(Compare(Asked(), bad, bad).erratum, "");
  const upgrade::ListedProblem behind = Lists({Make("graph:eng6"), Make("graph:eng5")});
  EXPECT_EQ(Compare(Asked(), bad, behind, "nvidia-a2,cc=8.6,sms=10").erratum, "");
}

TEST(CompareListingsTest, TheSameListsAreNoChange) {
  const upgrade::ListedProblem listed = Lists({Make("graph:eng1,k2=5", 100), Make("graph:eng2")});
  const upgrade::UpgradeChange change = Compare(Asked(), listed, listed);
  EXPECT_EQ(change.choice, upgrade::FirstChoiceChange::kSame);
  EXPECT_FALSE(change.any());
  EXPECT_THAT(change.came, IsEmpty());
  EXPECT_THAT(change.went, IsEmpty());
}

TEST(CompareListingsTest, OtherKnobsAreToldFromAnotherEngine) {
  const upgrade::ListedProblem from = Lists({Make("graph:eng1,k2=5")});
  EXPECT_EQ(Compare(Asked(), from, Lists({Make("graph:eng1,k2=6")})).choice,
            upgrade::FirstChoiceChange::kKnobs);
  EXPECT_EQ(Compare(Asked(), from, Lists({Make("graph:eng3,k2=5")})).choice,
            upgrade::FirstChoiceChange::kEngine);
}

TEST(CompareListingsTest, TheFirstThatCanBeBuiltCountsAndNotTheFirstListed) {
  const upgrade::ListedProblem from = Lists({Make("graph:eng1"), Make("graph:eng2")});
  upgrade::ListedProblem to = from;
  to.tuning.mutable_candidates(0)->set_status(v1::CANDIDATE_STATUS_FAILED);
  const upgrade::UpgradeChange change = Compare(Asked(), from, to);
  EXPECT_EQ(change.from, "graph:eng1");
  EXPECT_EQ(change.to, "graph:eng2");
  EXPECT_EQ(change.choice, upgrade::FirstChoiceChange::kEngine);
}

TEST(CompareListingsTest, WorkspaceNotesAndListsAreCompared) {
  const uint32_t tensor = NoteBit(NumericalNote::kTensorCore);
  const upgrade::UpgradeChange change =
      Compare(Asked(), Lists({Make("graph:eng1", 0, tensor), Make("graph:eng2")}),
              Lists({Make("graph:eng3", 686 << 20, NoteBit(NumericalNote::kFft) | 1U << 20),
                     Make("graph:eng1")}));
  EXPECT_TRUE(change.workspace_grew());
  EXPECT_EQ(change.to_workspace, 686 << 20);
  EXPECT_THAT(change.notes_added, ElementsAre("fft", "numerical_note_20"));
  EXPECT_THAT(change.notes_removed, ElementsAre("tensor_core"));
  EXPECT_THAT(change.came, ElementsAre("graph:eng3"));
  EXPECT_THAT(change.went, ElementsAre("graph:eng2"));
}

// In the modes that list it, each in first place.
Candidate InModes(const std::string& text, bool a, bool b, bool fallback) {
  Candidate candidate = Make(text);
  candidate.places = {.mode_a = a, .mode_b = b, .fallback = fallback};
  return candidate;
}

TEST(CompareListingsTest, AFirstChoiceThatFallsToLastResortIsTold) {
  const upgrade::ListedProblem in_a = Lists({InModes("graph:eng28", true, true, false)});
  const upgrade::ListedProblem in_b = Lists({InModes("graph:eng28", false, true, true)});
  const upgrade::ListedProblem fallback = Lists({InModes("graph:eng1", false, false, true)});
  const upgrade::UpgradeChange change = Compare(Asked(), in_a, fallback);
  EXPECT_EQ(change.from_mode, "A");
  EXPECT_EQ(change.to_mode, "FALLBACK");
  EXPECT_TRUE(change.last_resort);
  EXPECT_TRUE(Compare(Asked(), in_b, fallback).last_resort);
  EXPECT_EQ(Compare(Asked(), in_a, in_b).to_mode, "B");
  EXPECT_FALSE(Compare(Asked(), in_a, in_b).last_resort);
  EXPECT_FALSE(Compare(Asked(), fallback, fallback).last_resort);
  EXPECT_FALSE(Compare(Asked(), fallback, in_a).last_resort);
  EXPECT_FALSE(Compare(Asked(), upgrade::ListedProblem(), fallback).last_resort);
  // The same engine, which modes A and B do not list any more.
  const upgrade::UpgradeChange same =
      Compare(Asked(), in_a, Lists({InModes("graph:eng28", false, false, true)}));
  EXPECT_EQ(same.choice, upgrade::FirstChoiceChange::kSame);
  EXPECT_TRUE(same.any());
  EXPECT_TRUE(same.last_resort);
}

TEST(CompareListingsTest, ARefusalLosesTheChoiceAndSaysWhy) {
  upgrade::ListedProblem refused;
  refused.refusal = "cuDNN lists no engine for this problem";
  const upgrade::ListedProblem listed = Lists({Make("graph:eng1", 10)});
  const upgrade::UpgradeChange lost = Compare(Asked(), listed, refused);
  EXPECT_EQ(lost.choice, upgrade::FirstChoiceChange::kLost);
  EXPECT_TRUE(lost.lost());
  EXPECT_FALSE(lost.workspace_grew());
  EXPECT_EQ(lost.reason, refused.refusal);
  EXPECT_EQ(Compare(Asked(), refused, listed).choice, upgrade::FirstChoiceChange::kGained);
  EXPECT_FALSE(Compare(Asked(), refused, refused).any());
}

TEST(CompareListingsTest, ADeadWorkerIsNoSuccess) {
  upgrade::ListedProblem died;
  died.error = "the worker died: signal 11 (SIGSEGV)";
  const upgrade::UpgradeChange change = Compare(Asked(), Lists({Make("graph:eng1")}), died);
  EXPECT_EQ(change.choice, upgrade::FirstChoiceChange::kUnknown);
  EXPECT_TRUE(change.any());
  EXPECT_FALSE(change.lost());
  EXPECT_EQ(change.reason, died.error);
}

TEST(CompareListingsTest, AStoredWinnerIsLostWhereItCannotBeBuilt) {
  const upgrade::ListedProblem from = Lists({Make("graph:eng1")});
  upgrade::ListedProblem to = from;
  to.winner_builds = true;
  EXPECT_FALSE(Compare(Asked("graph:eng9"), from, to).any());
  to.winner_builds = false;
  const upgrade::UpgradeChange change = Compare(Asked("graph:eng9"), from, to);
  EXPECT_TRUE(change.winner_lost);
  EXPECT_TRUE(change.lost());
  EXPECT_EQ(change.choice, upgrade::FirstChoiceChange::kSame);
}

TEST(CompareListingsTest, AWinnerThatTheOldVersionRefusesTooIsNotLost) {
  upgrade::ListedProblem refused;
  refused.refusal = "cuDNN lists no engine for this problem";
  refused.winner_builds = false;
  const upgrade::UpgradeChange change = Compare(Asked("graph:eng9"), refused, refused);
  EXPECT_FALSE(change.winner_lost);
  EXPECT_FALSE(change.lost());
}

TEST(PrintUpgradeTest, CountsAndKeepsTheLargestGrowth) {
  const upgrade::ListedProblem small = Lists({Make("graph:eng1", 100)});
  const upgrade::ListedProblem large = Lists({Make("graph:eng2", 900)});
  const upgrade::ListedProblem middle = Lists({Make("graph:eng1,k2=1", 300)});
  const std::string document = Print({
      Compare(Asked(), small, large),
      Compare(Asked(), small, middle),
      Compare(Asked(), large, small),
      Compare(Asked(), small, small),
      Compare(Asked(), small, upgrade::ListedProblem()),
  });
  EXPECT_THAT(document, HasSubstr(R"("summary":{"problems":5,"choice":4,"engine":2,)"));
  EXPECT_THAT(document, HasSubstr(R"("workspaceGrew":2,"workspaceShrank":1,)"));
  EXPECT_THAT(document, HasSubstr(R"("lost":1,)"));
  EXPECT_THAT(document, HasSubstr(R"("mostGrowthFromBytes":100,"mostGrowthToBytes":900})"));
}

TEST(PrintUpgradeTest, LostWinnersAreToldFromProblemsWithoutAChoice) {
  const upgrade::ListedProblem listed = Lists({Make("graph:eng1")});
  upgrade::ListedProblem unbuilt = listed;
  unbuilt.winner_builds = false;
  const std::string document = Print({
      Compare(Asked("graph:eng9"), listed, unbuilt),
      Compare(Asked(), listed, upgrade::ListedProblem()),
      Compare(Asked(), listed, upgrade::ListedProblem()),
  });
  EXPECT_THAT(document, HasSubstr(R"("winners":1,"winnersLost":1,"choicesLost":2,"lost":3,)"));
  EXPECT_THAT(document, HasSubstr(R"("mostGrowthFromBytes":0,"mostGrowthToBytes":0})"));
}

TEST(TuneListTest, HasWhatChangedOnAnyProfile) {
  const upgrade::AskedProblem first = Asked();
  upgrade::AskedProblem second = Asked();
  second.problem = ConvProblem::Parse("fwd,x=8x64x7x7,w=64x64x1x1,nhwc,f16").value();
  const upgrade::ListedProblem one = Lists({Make("graph:eng1")}), two = Lists({Make("graph:eng2")});
  const upgrade::UpgradeChange same = Compare(first, one, one);
  const upgrade::UpgradeChange changed = Compare(second, one, two);
  const upgrade::UpgradeChange unchanged = Compare(second, one, one);
  const std::string list =
      upgrade::TuneList({{"a", "", "", {same, unchanged}}, {"b", "", "", {same, changed}}});
  EXPECT_EQ(list, "problem,count\n\"" + second.problem.ToText() + "\",3\n");
}

}  // namespace
}  // namespace convtune::cli::commands

#include "client/cli/commands/upgrade/upgrade_changes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/cli/commands/upgrade/upgrade_output.h"

namespace convtune::cli {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

AskedProblem Asked(const std::string& winner = "") {
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
ListedProblem Lists(std::vector<Candidate> candidates) {
  ListedProblem listed;
  listed.listed = std::move(candidates);
  if (!listed.listed.empty()) listed.first = 0;
  return listed;
}

TEST(CompareListingsTest, TheSameListsAreNoChange) {
  const ListedProblem listed = Lists({Make("graph:eng1,k2=5", 100), Make("graph:eng2")});
  const UpgradeChange change = CompareListings(Asked(), listed, listed);
  EXPECT_EQ(change.choice, FirstChoiceChange::kSame);
  EXPECT_FALSE(change.any());
  EXPECT_THAT(change.came, IsEmpty());
  EXPECT_THAT(change.went, IsEmpty());
}

TEST(CompareListingsTest, OtherKnobsAreToldFromAnotherEngine) {
  const ListedProblem from = Lists({Make("graph:eng1,k2=5")});
  EXPECT_EQ(CompareListings(Asked(), from, Lists({Make("graph:eng1,k2=6")})).choice,
            FirstChoiceChange::kKnobs);
  EXPECT_EQ(CompareListings(Asked(), from, Lists({Make("graph:eng3,k2=5")})).choice,
            FirstChoiceChange::kEngine);
}

TEST(CompareListingsTest, TheFirstThatCanBeBuiltCountsAndNotTheFirstListed) {
  const ListedProblem from = Lists({Make("graph:eng1"), Make("graph:eng2")});
  ListedProblem to = from;
  to.first = 1;
  const UpgradeChange change = CompareListings(Asked(), from, to);
  EXPECT_EQ(change.from, "graph:eng1");
  EXPECT_EQ(change.to, "graph:eng2");
  EXPECT_EQ(change.choice, FirstChoiceChange::kEngine);
}

TEST(CompareListingsTest, WorkspaceNotesAndListsAreCompared) {
  const uint32_t tensor = NoteBit(NumericalNote::kTensorCore);
  const UpgradeChange change =
      CompareListings(Asked(), Lists({Make("graph:eng1", 0, tensor), Make("graph:eng2")}),
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
  const ListedProblem in_a = Lists({InModes("graph:eng28", true, true, false)});
  const ListedProblem in_b = Lists({InModes("graph:eng28", false, true, true)});
  const ListedProblem fallback = Lists({InModes("graph:eng1", false, false, true)});
  const UpgradeChange change = CompareListings(Asked(), in_a, fallback);
  EXPECT_EQ(change.from_mode, "A");
  EXPECT_EQ(change.to_mode, "FALLBACK");
  EXPECT_TRUE(change.last_resort);
  EXPECT_TRUE(CompareListings(Asked(), in_b, fallback).last_resort);
  EXPECT_EQ(CompareListings(Asked(), in_a, in_b).to_mode, "B");
  EXPECT_FALSE(CompareListings(Asked(), in_a, in_b).last_resort);
  EXPECT_FALSE(CompareListings(Asked(), fallback, fallback).last_resort);
  EXPECT_FALSE(CompareListings(Asked(), fallback, in_a).last_resort);
  EXPECT_FALSE(CompareListings(Asked(), ListedProblem(), fallback).last_resort);
  // The same engine, which modes A and B do not list any more.
  const UpgradeChange same =
      CompareListings(Asked(), in_a, Lists({InModes("graph:eng28", false, false, true)}));
  EXPECT_EQ(same.choice, FirstChoiceChange::kSame);
  EXPECT_TRUE(same.any());
  EXPECT_EQ(UpgradeSummary::Of({change, same, CompareListings(Asked(), in_a, in_b)}).last_resort,
            2);
}

TEST(CompareListingsTest, ARefusalLosesTheChoiceAndSaysWhy) {
  ListedProblem refused;
  refused.refusal = "cuDNN lists no engine for this problem";
  const ListedProblem listed = Lists({Make("graph:eng1", 10)});
  const UpgradeChange lost = CompareListings(Asked(), listed, refused);
  EXPECT_EQ(lost.choice, FirstChoiceChange::kLost);
  EXPECT_TRUE(lost.lost());
  EXPECT_FALSE(lost.workspace_grew());
  EXPECT_EQ(lost.reason, refused.refusal);
  EXPECT_EQ(CompareListings(Asked(), refused, listed).choice, FirstChoiceChange::kGained);
  EXPECT_FALSE(CompareListings(Asked(), refused, refused).any());
}

TEST(CompareListingsTest, ADeadWorkerIsNoSuccess) {
  ListedProblem died;
  died.error = "the worker was ended by signal 11 (SEGV)";
  const UpgradeChange change = CompareListings(Asked(), Lists({Make("graph:eng1")}), died);
  EXPECT_EQ(change.choice, FirstChoiceChange::kUnknown);
  EXPECT_TRUE(change.any());
  EXPECT_FALSE(change.lost());
  EXPECT_EQ(change.reason, died.error);
}

TEST(CompareListingsTest, AStoredWinnerIsLostWhereItCannotBeBuilt) {
  const ListedProblem from = Lists({Make("graph:eng1")});
  ListedProblem to = from;
  to.winner_builds = true;
  EXPECT_FALSE(CompareListings(Asked("graph:eng9"), from, to).any());
  to.winner_builds = false;
  const UpgradeChange change = CompareListings(Asked("graph:eng9"), from, to);
  EXPECT_TRUE(change.winner_lost);
  EXPECT_TRUE(change.lost());
  EXPECT_EQ(change.choice, FirstChoiceChange::kSame);
}

TEST(CompareListingsTest, AWinnerThatTheOldVersionRefusesTooIsNotLost) {
  ListedProblem refused;
  refused.refusal = "cuDNN lists no engine for this problem";
  refused.winner_builds = false;
  const UpgradeChange change = CompareListings(Asked("graph:eng9"), refused, refused);
  EXPECT_FALSE(change.winner_lost);
  EXPECT_FALSE(change.lost());
}

TEST(UpgradeSummaryTest, CountsAndKeepsTheLargestGrowth) {
  const ListedProblem small = Lists({Make("graph:eng1", 100)});
  const ListedProblem large = Lists({Make("graph:eng2", 900)});
  const ListedProblem middle = Lists({Make("graph:eng1,k2=1", 300)});
  const UpgradeSummary summary = UpgradeSummary::Of({
      CompareListings(Asked(), small, large),
      CompareListings(Asked(), small, middle),
      CompareListings(Asked(), large, small),
      CompareListings(Asked(), small, small),
      CompareListings(Asked(), small, ListedProblem()),
  });
  EXPECT_EQ(summary.problems, 5);
  EXPECT_EQ(summary.choice, 4);
  EXPECT_EQ(summary.engine, 2);
  EXPECT_EQ(summary.workspace_grew, 2);
  EXPECT_EQ(summary.workspace_shrank, 1);
  EXPECT_EQ(summary.lost, 1);
  EXPECT_EQ(summary.most_growth_from, 100);
  EXPECT_EQ(summary.most_growth_to, 900);
}

TEST(UpgradeSummaryTest, LostWinnersAreToldFromProblemsWithoutAChoice) {
  const ListedProblem listed = Lists({Make("graph:eng1")});
  ListedProblem unbuilt = listed;
  unbuilt.winner_builds = false;
  const UpgradeSummary summary = UpgradeSummary::Of({
      CompareListings(Asked("graph:eng9"), listed, unbuilt),
      CompareListings(Asked(), listed, ListedProblem()),
      CompareListings(Asked(), listed, ListedProblem()),
  });
  EXPECT_EQ(summary.winners, 1);
  EXPECT_EQ(summary.winners_lost, 1);
  EXPECT_EQ(summary.choices_lost, 2);
  EXPECT_EQ(summary.lost, 3);
}

TEST(TuneListTest, HasWhatChangedOnAnyProfile) {
  const AskedProblem first = Asked();
  AskedProblem second = Asked();
  second.problem = ConvProblem::Parse("fwd,x=8x64x7x7,w=64x64x1x1,nhwc,f16").value();
  const ListedProblem one = Lists({Make("graph:eng1")}), two = Lists({Make("graph:eng2")});
  const UpgradeChange same = CompareListings(first, one, one);
  const UpgradeChange changed = CompareListings(second, one, two);
  const std::string list =
      TuneList({first, second}, {{"a", {}, {}, {same, same}}, {"b", {}, {}, {same, changed}}});
  EXPECT_EQ(list, "problem,count\n\"" + second.problem.ToText() + "\",3\n");
}

}  // namespace
}  // namespace convtune::cli

#include "server/release/releases.h"

#include <algorithm>
#include <map>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fakes/memory_store.h"
#include "tests/unit/candidates.h"

namespace convtune::release {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::Pair;

class ReleasesTest : public ::testing::Test {
 protected:
  ReleasesTest() { Start(); }

  void Start(bool auto_promote = false, Evidence floor = Evidence::kObserved) {
    releases_ = std::make_unique<Releases>(Releases::Options{
        &store_, &index_, &clock_, [this](const TuningKey& key) { return store_.GetTuning(key); },
        floor, auto_promote});
    ASSERT_TRUE(releases_->Load().ok());
    ASSERT_TRUE(releases_->ReadChoices().ok());
  }

  static TuningKey Key(int n) {
    return KeyOf("fwd,x=" + std::to_string(n) + "x8x8x8,w=8x8x3x3,pad=1,f16");
  }
  // Problem n's best is `engine` from now on, and the releases know it.
  bool Know(int n, int engine, CandidateStatus status = CandidateStatus::kTimed,
            Origin origin = Origin::kLocal) {
    Tuning tuning = TuningOf({With(Timed(engine, 10), status)});
    tuning.origin = origin;
    tuning.key = Key(n);
    index_.Put(tuning, true);
    return releases_->Reconcile({tuning.key}).value();
  }
  // The same, compiled at run time by an NVRTC; `others` ran, too.
  bool KnowCompiled(int n, int engine, const std::string& nvrtc, int others = 0) {
    const auto compiled = [](Candidate candidate) {
      candidate.behavior_notes = NoteBit(BehaviorNote::kRuntimeCompilation);
      return candidate;
    };
    std::vector<Candidate> candidates = {compiled(Timed(engine, 10))};
    if (others != 0) candidates.push_back(compiled(Timed(others, 90, 0.2, 1 << 20)));
    Tuning tuning = TuningOf(std::move(candidates));
    tuning.provenance.nvrtc_build = nvrtc;
    tuning.key = Key(n);
    EXPECT_TRUE(store_.PutTuning(tuning, Environment::Parse(kH200).value()).ok());
    index_.Put(tuning, true);
    return releases_->Reconcile({tuning.key}).value();
  }
  using Served = std::vector<std::pair<std::string, std::string>>;  // problem, engine
  Served Stable() { return Channel(false); }
  Served Canary() { return Channel(true); }
  Served Channel(bool canary) {
    Served served;
    const auto add = [&served](const Portfolio& p) {
      const auto first = std::find_if(p.choices.begin(), p.choices.end(), [](const Choice& choice) {
        return (choice.roles & kServedRoles) != 0;
      });
      if (first == p.choices.end()) return;
      served.emplace_back(p.key.problem_text.substr(0, 7), ToText(first->candidate.id));
    };
    const auto all = releases_->ReadServed();
    EXPECT_TRUE(all.ok());
    for (const Portfolio& p : canary ? all->canary : all->stable) add(p);
    return served;
  }
  ReleaseDecision Ann() const { return {"ann", "because", ToMicros(clock_.Now())}; }

  SystemClock clock_;
  MemoryStore store_;
  lookup::TuningIndex index_{decision::ProvenanceByEnvironment{{kH200, Builds("", "new")}}};
  std::unique_ptr<Releases> releases_;
};

TEST_F(ReleasesTest, AProblemWithoutAChoiceGetsOneAtOnce) {
  EXPECT_TRUE(Know(1, 5));
  EXPECT_TRUE(Know(2, 6));
  EXPECT_THAT(Stable(), ElementsAre(Pair("fwd,x=1", "graph:eng5"), Pair("fwd,x=2", "graph:eng6")));
  EXPECT_EQ(releases_->List().promoted(), 1);
}

TEST_F(ReleasesTest, WhatCouldNotBeJudgedIsNeverServedWhateverTheFloor) {
  Start(/*auto_promote=*/false, Evidence::kHeuristic);
  const auto know = [this](const decision::TuningCircumstances& circumstances) {
    Tuning tuning = TuningOf({Finalized(5)}, circumstances);
    tuning.key = Key(1);
    EXPECT_EQ(tuning.evidence, Evidence::kHeuristic);
    index_.Put(tuning, true);
    return releases_->Reconcile({tuning.key}).value();
  };
  decision::TuningCircumstances unjudged;
  unjudged.doubt = {1, /*none_is_right=*/true, /*graph_stock=*/true, false, "why"};
  EXPECT_FALSE(know(unjudged));
  EXPECT_THAT(Stable(), IsEmpty());
  EXPECT_TRUE(know({}));
  EXPECT_THAT(Stable(), ElementsAre(Pair("fwd,x=1", "graph:eng5")));
  // Also what was served before is taken back.
  EXPECT_TRUE(know(unjudged));
  EXPECT_THAT(Stable(), IsEmpty());
}

TEST_F(ReleasesTest, AChangedChoiceWaitsForThePromotion) {
  Know(1, 5);
  EXPECT_FALSE(Know(1, 7));
  EXPECT_THAT(Stable(), ElementsAre(Pair("fwd,x=1", "graph:eng5")));
  EXPECT_EQ(releases_->List().waiting_changes(), 1);
  ASSERT_TRUE(releases_->Promote(Ann(), 0).ok());
  EXPECT_THAT(Stable(), ElementsAre(Pair("fwd,x=1", "graph:eng7")));
  EXPECT_EQ(releases_->List().waiting_changes(), 0);
  EXPECT_EQ(releases_->List().promoted(), 2);
}

TEST_F(ReleasesTest, FollowingTheFleetPromotesItsChoicesAlone) {
  Know(1, 5);
  Know(2, 6);
  Know(1, 7, CandidateStatus::kTimed, Origin::kFleet);
  Know(2, 8);
  const auto followed = releases_->PromoteFleet(Ann());
  ASSERT_TRUE(followed.ok() && followed->has_value());
  EXPECT_EQ((*followed)->author, "ann");
  EXPECT_THAT(Stable(), ElementsAre(Pair("fwd,x=1", "graph:eng7"), Pair("fwd,x=2", "graph:eng6")));
  EXPECT_EQ(releases_->List().waiting_changes(), 1);
}

TEST_F(ReleasesTest, FollowingTheFleetMakesNoReleaseWhereNothingOfItsWaits) {
  Know(1, 5, CandidateStatus::kTimed, Origin::kFleet);
  Know(2, 6);
  Know(2, 8);
  EXPECT_EQ(*releases_->PromoteFleet(Ann()), std::nullopt);
  EXPECT_EQ(releases_->List().promoted(), 1);
}

TEST_F(ReleasesTest, FollowingTheFleetWaitsForTheEndOfACanaryOfItsOwn) {
  Know(1, 5);
  Know(1, 7);
  ASSERT_TRUE(releases_->Promote(Ann(), 50).ok());
  Know(1, 9, CandidateStatus::kTimed, Origin::kFleet);
  EXPECT_TRUE(absl::IsFailedPrecondition(releases_->PromoteFleet(Ann()).status()));
  ASSERT_TRUE(releases_->RollBack(Ann(), 0).ok());
  EXPECT_TRUE(releases_->PromoteFleet(Ann()).ok());
  EXPECT_THAT(Stable(), ElementsAre(Pair("fwd,x=1", "graph:eng9")));
}

TEST_F(ReleasesTest, AChangeThatIsTakenBackWaitsNoMore) {
  Know(1, 5);
  Know(1, 7);
  Know(1, 5);
  EXPECT_EQ(releases_->List().waiting_changes(), 0);
  EXPECT_TRUE(absl::IsFailedPrecondition(releases_->Promote(Ann(), 0).status()));
}

TEST_F(ReleasesTest, EvidenceBelowTheFloorIsNotServed) {
  EXPECT_FALSE(Know(1, 5, CandidateStatus::kFinalized));
  EXPECT_THAT(Stable(), IsEmpty());
  Start(false, Evidence::kHeuristic);
  EXPECT_TRUE(Know(1, 5, CandidateStatus::kFinalized));
  EXPECT_THAT(Stable(), ElementsAre(Pair("fwd,x=1", "graph:eng5")));
}

TEST_F(ReleasesTest, ProblemsWithoutAChoiceForWantOfEvidenceAreCounted) {
  EXPECT_EQ(releases_->List().publish_evidence(), v1::EVIDENCE_OBSERVED);
  Know(1, 5, CandidateStatus::kFinalized);
  Know(2, 5, CandidateStatus::kFinalized);
  Know(3, 5);
  EXPECT_EQ(releases_->List().below_evidence_count(), 2);
  Know(1, 5);
  EXPECT_EQ(releases_->List().below_evidence_count(), 1);
  // One that is served what was known before is served.
  Know(3, 6, CandidateStatus::kFinalized);
  EXPECT_EQ(releases_->List().below_evidence_count(), 1);
  index_.Erase(Key(2));
  EXPECT_TRUE(releases_->Reconcile({Key(2)}).ok());
  EXPECT_EQ(releases_->List().below_evidence_count(), 0);
  // After a restart, too.
  Know(2, 5, CandidateStatus::kFinalized);
  Start();
  EXPECT_TRUE(releases_->Reconcile({}, /*all=*/true).ok());
  EXPECT_EQ(releases_->List().below_evidence_count(), 1);
}

TEST_F(ReleasesTest, AutoPromotionServesAChangeAtOnceAndCountsIt) {
  Start(/*auto_promote=*/true);
  Know(1, 5);
  EXPECT_TRUE(Know(1, 7));
  EXPECT_THAT(Stable(), ElementsAre(Pair("fwd,x=1", "graph:eng7")));
  EXPECT_EQ(releases_->List().promoted(), 2);
  EXPECT_EQ(releases_->List().releases(0).author(), "convtuned");
}

TEST_F(ReleasesTest, AutoPromotionNeverBringsBackWhatWasRolledBack) {
  Start(/*auto_promote=*/true);
  Know(1, 5);
  Know(1, 7);
  ASSERT_TRUE(releases_->RollBack(Ann(), 0).ok());
  EXPECT_FALSE(Know(1, 7));
  EXPECT_THAT(Stable(), ElementsAre(Pair("fwd,x=1", "graph:eng5")));
  EXPECT_TRUE(releases_->List().auto_promote_held());
  EXPECT_EQ(releases_->List().waiting_changes(), 1);
  ASSERT_TRUE(releases_->Promote(Ann(), 0).ok());
  EXPECT_FALSE(releases_->List().auto_promote_held());
}

TEST_F(ReleasesTest, RollbackBringsTheOldChoicesBackAndKeepsNewProblems) {
  Know(1, 5);
  Know(1, 7);
  ASSERT_TRUE(releases_->Promote(Ann(), 0).ok());
  Know(2, 6);
  ASSERT_TRUE(releases_->RollBack(Ann(), 0).ok());
  EXPECT_THAT(Stable(), ElementsAre(Pair("fwd,x=1", "graph:eng5"), Pair("fwd,x=2", "graph:eng6")));
  EXPECT_EQ(releases_->List().promoted(), 3);
  EXPECT_EQ(releases_->List().waiting_changes(), 1);
}

TEST_F(ReleasesTest, ARollbackThatIsWrittenPromotesNothingWhereTheDiskThenReadsNothing) {
  Know(1, 5);
  Know(2, 6);
  Know(1, 7);
  ASSERT_TRUE(releases_->Promote(Ann(), 0).ok());
  Know(2, 9);
  store_.FailReadsAfterAWriteWith(absl::UnavailableError("disk"));
  EXPECT_TRUE(releases_->RollBack(Ann(), 0).ok());
  store_.FailReadsAfterAWriteWith(absl::OkStatus());
  EXPECT_FALSE(releases_->Reconcile({Key(1), Key(2)}).value());
  EXPECT_THAT(Stable(), ElementsAre(Pair("fwd,x=1", "graph:eng5"), Pair("fwd,x=2", "graph:eng6")));
  EXPECT_EQ(releases_->List().waiting_changes(), 2);
}

TEST_F(ReleasesTest, ACanaryHasOnlyWhatDiffersAndPromotingItMovesItOver) {
  Know(1, 5);
  Know(2, 6);
  Know(1, 7);
  ASSERT_TRUE(releases_->Promote(Ann(), 100).ok());
  EXPECT_THAT(Stable(), ElementsAre(Pair("fwd,x=1", "graph:eng5"), Pair("fwd,x=2", "graph:eng6")));
  EXPECT_THAT(Canary(), ElementsAre(Pair("fwd,x=1", "graph:eng7")));
  EXPECT_EQ(releases_->List().waiting_changes(), 0);
  Know(3, 8);  // both get it
  ASSERT_TRUE(releases_->Promote(Ann(), 0).ok());
  EXPECT_THAT(Stable(), ElementsAre(Pair("fwd,x=1", "graph:eng7"), Pair("fwd,x=2", "graph:eng6"),
                                    Pair("fwd,x=3", "graph:eng8")));
  EXPECT_THAT(Canary(), IsEmpty());
  EXPECT_FALSE(Know(1, 7));
  EXPECT_EQ(releases_->List().waiting_changes(), 0);
}

TEST_F(ReleasesTest, ARolledBackCanaryLeavesNothingBehindInLaterReleases) {
  Know(1, 5);
  Know(1, 7);
  ASSERT_TRUE(releases_->Promote(Ann(), 100).ok());
  ASSERT_TRUE(releases_->RollBack(Ann(), 0).ok());
  EXPECT_EQ(releases_->List().waiting_changes(), 1);
  Know(1, 5);
  Know(2, 6);
  Know(2, 9);
  ASSERT_TRUE(releases_->Promote(Ann(), 0).ok());
  EXPECT_THAT(Stable(), ElementsAre(Pair("fwd,x=1", "graph:eng5"), Pair("fwd,x=2", "graph:eng9")));
}

TEST_F(ReleasesTest, ADeletedTuningLosesItsChoiceAtOnceAndMayGetAnother) {
  Know(1, 5);
  index_.Erase(Key(1));
  EXPECT_TRUE(releases_->Reconcile({Key(1)}).value());
  EXPECT_THAT(Stable(), IsEmpty());
  EXPECT_FALSE(releases_->HasChoice(Key(1)));
  EXPECT_TRUE(Know(1, 9));
  EXPECT_THAT(Stable(), ElementsAre(Pair("fwd,x=1", "graph:eng9")));
}

TEST_F(ReleasesTest, ARestartServesTheSameAndKnowsWhatWaits) {
  Know(1, 5);
  Know(1, 7);
  ASSERT_TRUE(releases_->Promote(Ann(), 100).ok());
  Know(2, 6);
  Know(2, 8);
  const Served stable = Stable();
  const Served canary = Canary();
  Start();
  EXPECT_FALSE(releases_->Reconcile({}, /*all=*/true).value());
  EXPECT_EQ(Stable(), stable);
  EXPECT_EQ(Canary(), canary);
  EXPECT_EQ(releases_->List().waiting_changes(), 1);
  EXPECT_EQ(releases_->List().canary(), 2);
}

TEST_F(ReleasesTest, ATuningThatCannotBeReadAnyMoreKeepsItsChoice) {
  Know(1, 5);
  index_.Erase(Key(1));  // as a damaged row that was left out at start
  Start();
  ASSERT_TRUE(releases_->Reconcile({}, /*all=*/true).ok());
  EXPECT_THAT(Stable(), ElementsAre(Pair("fwd,x=1", "graph:eng5")));
}

TEST_F(ReleasesTest, WhatTheDiskRefusesIsNotServed) {
  store_.FailReleasesWith(absl::UnavailableError("disk"));
  Tuning tuning = TuningOf({Timed(5, 10)});
  tuning.key = Key(1);
  index_.Put(tuning, true);
  EXPECT_TRUE(absl::IsUnavailable(releases_->Reconcile({Key(1)}).status()));
  EXPECT_FALSE(releases_->HasChoice(Key(1)));
  store_.FailReleasesWith(absl::OkStatus());
  EXPECT_TRUE(releases_->Reconcile({Key(1)}).value());
}

TEST_F(ReleasesTest, DiffSaysWhatAPromotionWouldBring) {
  Know(1, 5);
  Know(2, 6);
  Know(1, 7);
  const auto diff = releases_->Diff(0, 0, "");
  ASSERT_TRUE(diff.ok());
  ASSERT_EQ(diff->changes.size(), 1U);
  EXPECT_EQ(diff->from, 1);
  EXPECT_EQ(ToText(diff->changes[0].before.choices[0].candidate.id), "graph:eng5");
  EXPECT_EQ(ToText(diff->changes[0].after.choices[0].candidate.id), "graph:eng7");
}

TEST_F(ReleasesTest, DiffOfTwoReleasesHasWhatChangedInOrder) {
  for (int n = 1; n <= 5; ++n) Know(n, 5);
  for (int n = 1; n <= 4; ++n) Know(n, 7);
  ASSERT_TRUE(releases_->Promote(Ann(), 0).ok());
  const auto diff = releases_->Diff(1, 2, "");
  ASSERT_TRUE(diff.ok());
  ASSERT_EQ(diff->changes.size(), 4U);
  for (int n = 1; n <= 4; ++n)
    EXPECT_EQ(diff->changes[static_cast<size_t>(n) - 1].after.key, Key(n));
  EXPECT_TRUE(absl::IsNotFound(releases_->Diff(1, 9, "").status()));
  EXPECT_EQ(releases_->Diff(1, 2, kH200)->changes.size(), 4U);
  EXPECT_TRUE(releases_->Diff(1, 2, "other")->changes.empty());
}

TEST_F(ReleasesTest, OldReleasesAreThinnedAndTheKeptOnesStay) {
  for (int i = 0; i < ReleaseHistory::kKept + 3; ++i) {
    Know(1, 100 + i);
    if (i > 0) {
      ASSERT_TRUE(releases_->Promote(Ann(), 0).ok());
    }
  }
  // Releases 1 to 19; the oldest kept is 4.
  ASSERT_TRUE(releases_->RollBack(Ann(), 4).ok());
  EXPECT_THAT(Stable(), ElementsAre(Pair("fwd,x=1", "graph:eng103")));
  EXPECT_TRUE(absl::IsNotFound(store_.GetPortfolio(Key(1), 3).status()));
}

// As a release has it from the time before a library changed: the choice is of a
// tuning that the index has no more.
class OldChoiceTest : public ReleasesTest {
 protected:
  OldChoiceTest() {
    KnowCompiled(1, 5, "new");
    Know(2, 6);
  }
};

TEST_F(OldChoiceTest, WhatDoesNotHoldAnyMoreIsTakenAway) {
  EXPECT_TRUE(KnowCompiled(1, 5, "old"));
  EXPECT_THAT(Stable(), ElementsAre(Pair("fwd,x=2", "graph:eng6")));
  EXPECT_FALSE(releases_->HasChoice(Key(1)));
  // And what is measured anew needs no promotion.
  EXPECT_TRUE(KnowCompiled(1, 7, "new"));
  EXPECT_THAT(Stable(), ElementsAre(Pair("fwd,x=1", "graph:eng7"), Pair("fwd,x=2", "graph:eng6")));
}

TEST_F(OldChoiceTest, TheSameAtTheStartWhereNothingElseIsTakenAway) {
  Tuning outdated = store_.GetTuning(Key(1)).value();
  outdated.provenance.nvrtc_build = "old";
  index_.Put(outdated, true);
  index_.Erase(Key(2));
  EXPECT_THAT(Stable(), ElementsAre(Pair("fwd,x=2", "graph:eng6")));  // before anything is decided
  EXPECT_TRUE(releases_->Reconcile({}, /*all=*/true).value());
  EXPECT_FALSE(releases_->HasChoice(Key(1)));
  EXPECT_TRUE(releases_->HasChoice(Key(2)));
}

TEST_F(OldChoiceTest, OneThatTheNewTuningDidNotRunIsReplacedAtOnce) {
  EXPECT_TRUE(KnowCompiled(1, 7, "new"));
  EXPECT_THAT(Stable(), ElementsAre(Pair("fwd,x=1", "graph:eng7"), Pair("fwd,x=2", "graph:eng6")));
  EXPECT_EQ(releases_->List().waiting_changes(), 0);
}

TEST_F(OldChoiceTest, OneThatTheNewTuningRanWaitsForAPromotionAsEver) {
  EXPECT_FALSE(KnowCompiled(1, 7, "new", /*others=*/5));
  EXPECT_THAT(Stable(), ElementsAre(Pair("fwd,x=1", "graph:eng5"), Pair("fwd,x=2", "graph:eng6")));
  EXPECT_EQ(releases_->List().waiting_changes(), 1);
}

TEST_F(OldChoiceTest, AGuessThatIsServedMeanwhileGivesNoChoiceBack) {
  Tuning guess = TuningOf({Finalized(5)}, {.first_configs_only = true});
  guess.key = Key(1);
  index_.PutInstead(guess, index_.Find(Key(1)).tuning);
  EXPECT_TRUE(releases_->Reconcile({Key(1)}).value());
  EXPECT_FALSE(releases_->HasChoice(Key(1)));
}

TEST_F(OldChoiceTest, APlanThatIsReportedMeanwhileIsNotInTheWayOfTheNextMeasurement) {
  Tuning observed = TuningOf({Finalized(5)}, {.first_configs_only = true});
  observed.key = Key(1);
  observed.evidence = Evidence::kObserved;
  index_.PutInstead(observed, index_.Find(Key(1)).tuning);
  EXPECT_TRUE(releases_->Reconcile({Key(1)}).value());
  EXPECT_FALSE(releases_->HasChoice(Key(1)));
  EXPECT_TRUE(KnowCompiled(1, 7, "new"));
  EXPECT_THAT(Stable(), ElementsAre(Pair("fwd,x=1", "graph:eng7"), Pair("fwd,x=2", "graph:eng6")));
  EXPECT_EQ(releases_->List().waiting_changes(), 0);
}

TEST_F(OldChoiceTest, OneWhoseTuningIsThereAgainIsServedAgain) {
  const Tuning tuning = store_.GetTuning(Key(1)).value();
  index_.Erase(Key(1));
  EXPECT_THAT(Stable(), ElementsAre(Pair("fwd,x=2", "graph:eng6")));
  EXPECT_FALSE(releases_->Reconcile({Key(2)}).value());
  index_.Put(tuning, true);
  EXPECT_TRUE(releases_->Reconcile({Key(1)}).value());  // to be published
  EXPECT_THAT(Stable(), ElementsAre(Pair("fwd,x=1", "graph:eng5"), Pair("fwd,x=2", "graph:eng6")));
  EXPECT_FALSE(releases_->Reconcile({Key(1)}).value());
}

TEST_F(OldChoiceTest, GoingBackDoesNotBringItBack) {
  EXPECT_FALSE(KnowCompiled(1, 7, "new", /*others=*/5));
  ASSERT_TRUE(releases_->Promote(Ann(), 0).ok());
  EXPECT_FALSE(KnowCompiled(1, 7, "new"));
  ASSERT_TRUE(releases_->RollBack(Ann(), 0).ok());
  EXPECT_THAT(Stable(), ElementsAre(Pair("fwd,x=2", "graph:eng6")));
  EXPECT_TRUE(releases_->Reconcile({}, /*all=*/true).value());
  EXPECT_THAT(Stable(), ElementsAre(Pair("fwd,x=1", "graph:eng7"), Pair("fwd,x=2", "graph:eng6")));
}

TEST_F(OldChoiceTest, ACanaryThatDoesNotHoldIsNotServed) {
  EXPECT_FALSE(KnowCompiled(1, 7, "new", /*others=*/5));
  ASSERT_TRUE(releases_->Promote(Ann(), 100).ok());
  EXPECT_THAT(Canary(), ElementsAre(Pair("fwd,x=1", "graph:eng7")));
  KnowCompiled(1, 7, "old");
  EXPECT_THAT(Canary(), IsEmpty());
  EXPECT_THAT(Stable(), ElementsAre(Pair("fwd,x=2", "graph:eng6")));
}

class BannedReleasesTest : public ReleasesTest {
 protected:
  // As the committer does.
  void Heed(const Bans& bans) {
    index_.SetBans(bans);
    for (const auto& [n, candidates] : known_) Put(n, candidates);
    EXPECT_TRUE(releases_->Reconcile({}, /*all=*/true).ok());
  }
  void KnowAll(int n, const std::vector<Candidate>& candidates) {
    known_[n] = candidates;
    Put(n, candidates);
    EXPECT_TRUE(releases_->Reconcile({Key(n)}).ok());
  }
  void Put(int n, const std::vector<Candidate>& candidates) {
    Tuning tuning = TuningOf(candidates);
    tuning.key = Key(n);
    index_.Put(tuning, true);
  }
  std::map<int, std::vector<Candidate>> known_;
};

TEST_F(BannedReleasesTest, ABannedChoiceGoesAtOnceAndTheNextBestIsServedWithoutAPromotion) {
  KnowAll(1, {Timed(5, 10), Timed(6, 20)});
  KnowAll(2, {Timed(7, 10), Timed(5, 20)});
  EXPECT_THAT(Stable(), ElementsAre(Pair("fwd,x=1", "graph:eng5"), Pair("fwd,x=2", "graph:eng7")));
  Heed(BansOfPattern("eng5"));
  EXPECT_THAT(Stable(), ElementsAre(Pair("fwd,x=1", "graph:eng6"), Pair("fwd,x=2", "graph:eng7")));
  EXPECT_EQ(releases_->List().waiting_changes(), 0);
  // The way back is a change like any other.
  Heed({});
  EXPECT_THAT(Stable(), ElementsAre(Pair("fwd,x=1", "graph:eng6"), Pair("fwd,x=2", "graph:eng7")));
  EXPECT_EQ(releases_->List().waiting_changes(), 1);
}

TEST_F(BannedReleasesTest, WhereAllIsBannedNothingIsServedUntilTheBanEnds) {
  KnowAll(1, {Timed(5, 10), Timed(6, 20)});
  Heed(BansOfPattern("graph:*"));
  EXPECT_THAT(Stable(), IsEmpty());
  Heed({});
  EXPECT_THAT(Stable(), ElementsAre(Pair("fwd,x=1", "graph:eng5")));
}

TEST_F(BannedReleasesTest, NeitherARollbackNorACanaryBringsABannedChoiceBack) {
  KnowAll(1, {Timed(5, 10), Timed(6, 20)});
  KnowAll(1, {Timed(5, 20), Timed(6, 10)});
  ASSERT_TRUE(releases_->Promote(Ann(), 0).ok());
  EXPECT_THAT(Stable(), ElementsAre(Pair("fwd,x=1", "graph:eng6")));
  Heed(BansOfPattern("eng5"));
  ASSERT_TRUE(releases_->RollBack(Ann(), 1).ok());
  for (const auto& [problem, engine] : Stable()) EXPECT_NE(engine, "graph:eng5");
  KnowAll(2, {Timed(7, 10)});
  KnowAll(2, {Timed(8, 5), Timed(7, 10)});
  ASSERT_TRUE(releases_->Promote(Ann(), 50).ok());
  EXPECT_THAT(Canary(), Contains(Pair("fwd,x=2", "graph:eng8")));
  Heed(BansOfPattern("eng8"));
  EXPECT_THAT(Canary(), Not(Contains(Pair("fwd,x=2", "graph:eng8"))));
}

}  // namespace
}  // namespace convtune::release

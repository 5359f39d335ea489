#include "server/lookup/tuning_index.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/candidates.h"

namespace convtune::lookup {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

Tuning TuningFor(const std::string& problem, std::vector<Candidate> candidates = {Timed(0, 10)},
                 const std::string& environment = kH200) {
  Tuning tuning = TuningOf(std::move(candidates));
  tuning.key = KeyOf(problem, environment);
  return tuning;
}

std::string Problem(int n) { return "fwd,x=" + std::to_string(n) + "x8x8x8,w=8x8x3x3,pad=1,f16"; }

IndexHit Serving(const TuningIndex& index, const std::string& problem) {
  return index.FindServing(ConvProblem::Parse(problem).value(), KeyOf(problem));
}

TEST(TuningIndex, AnErasedTuningLeavesTheOthers) {
  TuningIndex index;
  index.Put(TuningFor(Problem(1)), true);
  index.Put(TuningFor(Problem(2), {Timed(5, 10)}), true);
  EXPECT_EQ(index.Find(KeyOf(Problem(1))).tuning->Winner(), "graph:eng0");
  EXPECT_EQ(index.Find(KeyOf(Problem(2))).tuning->Winner(), "graph:eng5");
  EXPECT_TRUE(index.Erase(KeyOf(Problem(1))));
  EXPECT_EQ(index.Find(KeyOf(Problem(1))).tuning, nullptr);
  EXPECT_NE(index.Find(KeyOf(Problem(2))).tuning, nullptr);
}

TEST(TuningIndex, LessStrictAlignmentServesAStricterProblem) {
  TuningIndex index;
  index.Put(TuningFor(Problem(1) + ",align=4"), true);
  ASSERT_NE(Serving(index, Problem(1)).tuning, nullptr);
  EXPECT_NE(Serving(index, Problem(1) + ",align=128").tuning, nullptr);
  EXPECT_EQ(Serving(index, Problem(1) + ",align=2").tuning, nullptr);
  index.Erase(KeyOf(Problem(1) + ",align=4"));
  EXPECT_EQ(Serving(index, Problem(1)).tuning, nullptr);
}

TEST(TuningIndex, AStampChangesWithEveryTuningAndPinOfItsProblem) {
  TuningIndex index;
  const std::string loose = Problem(1) + ",align=4";
  EXPECT_FALSE(ChangeStamp().unchanged());
  const auto changes = [&](const std::string& problem, const auto& change) {
    const ChangeStamp stamp = index.StampOf(KeyOf(problem).problem_text);
    EXPECT_TRUE(stamp.unchanged());
    change();
    return !stamp.unchanged();
  };
  const auto put = [&](const std::string& problem) {
    return [&index, problem] { index.Put(TuningFor(problem), true); };
  };
  EXPECT_TRUE(changes(Problem(1), put(Problem(1))));
  EXPECT_TRUE(changes(Problem(1), put(loose)));
  EXPECT_TRUE(changes(loose, put(Problem(1))));
  EXPECT_FALSE(changes(Problem(1), put(Problem(2))));
  Pin pin;
  pin.key = KeyOf(Problem(1));
  EXPECT_TRUE(changes(Problem(1), [&] { index.SetPin(pin); }));
  EXPECT_TRUE(changes(Problem(1), [&] { index.ErasePin(pin.key); }));
  EXPECT_TRUE(changes(Problem(1), [&] { index.Erase(KeyOf(loose)); }));
}

TEST(TuningIndex, BetterEvidenceOfLessStrictAlignmentComesFirst) {
  TuningIndex index;
  index.Put(TuningFor(Problem(1), {Finalized(1)}), true);
  index.Put(TuningFor(Problem(1) + ",align=4", {Timed(2, 10)}), true);
  EXPECT_EQ(Serving(index, Problem(1)).tuning->Winner(), "graph:eng2");
}

TEST(TuningIndex, WhatIsTooOldComesAfterWeakerEvidenceThatIsNot) {
  const absl::Time now = absl::FromUnixSeconds(1'000'000);
  TuningIndex index;
  Tuning old = TuningFor(Problem(1), {Timed(1, 10)});
  old.tune_time = now - absl::Hours(2);
  index.Put(old, true);
  Tuning young = TuningFor(Problem(1) + ",align=4", {Finalized(2)});
  young.tune_time = now;
  index.Put(young, true);
  const auto winner = [&](absl::Time too_old) {
    const ConvProblem problem = ConvProblem::Parse(Problem(1)).value();
    return index.FindServing(problem, KeyOf(Problem(1)), too_old).tuning->Winner();
  };
  EXPECT_EQ(winner(absl::InfinitePast()), "graph:eng1");
  EXPECT_EQ(winner(now - absl::Hours(3)), "graph:eng1");
  EXPECT_EQ(winner(now - absl::Hours(2)), "graph:eng2");
  EXPECT_EQ(winner(now), "graph:eng1") << "of two that are too old the better one";
}

TEST(TuningIndex, OneThatDoesNotHoldIsNoEvidenceAndAnythingReplacesIt) {
  Candidate compiled = Timed(0, 10);
  compiled.behavior_notes = NoteBit(BehaviorNote::kRuntimeCompilation);
  Tuning old = TuningFor(Problem(1), {compiled});
  old.provenance.nvrtc_build = "old";
  TuningIndex index(decision::ProvenanceByEnvironment{{kH200, Builds("", "new")}});
  index.Put(old, true);
  const auto known = index.Find(old.key).tuning;
  EXPECT_TRUE(known->IsOutdated());
  EXPECT_EQ(known->tuning.evidence, Evidence::kNone);
  EXPECT_EQ(known->tuning.incomplete_reasons, ReasonBit(IncompleteReason::kOutdated));
  EXPECT_EQ(known->tuning.incomplete_message,
            "does not hold any more: measured with NVRTC old, there is new now");
  EXPECT_TRUE(Supersedes(TuningOf({Finalized(1)}), known->tuning.ToTuning(),
                         /*forced=*/false));
  TuningIndex elsewhere;
  elsewhere.Put(old, true);
  EXPECT_EQ(elsewhere.Find(old.key).tuning->tuning.evidence, Evidence::kMeasured);
}

TEST(TuningIndex, ListsInOrderPageByPage) {
  TuningIndex index;
  std::vector<std::string> expected;
  for (int n = 9; n >= 1; --n) index.Put(TuningFor(Problem(n)), true);
  for (int n = 1; n <= 9; ++n) expected.push_back(KeyOf(Problem(n)).problem_text);
  std::vector<std::string> listed;
  TuningPage page;
  int pages = 0;
  do {
    page = index.List(kH200, 4, page.more ? page.last() : TuningKey(), "");
    for (const auto& indexed : page.tunings) listed.push_back(indexed->tuning.key.problem_text);
    ++pages;
  } while (page.more);
  EXPECT_EQ(pages, 3);
  EXPECT_EQ(listed, expected);
}

TEST(TuningIndex, ListKeepsToEnvironmentAndFilter) {
  TuningIndex index;
  const std::string other = "nvidia-t4,cc=7.5,sms=40,cudnn=9.19.0,lib=full";
  index.Put(TuningFor(Problem(1)), true);
  index.Put(TuningFor(Problem(2)), true);
  index.Put(TuningFor(Problem(1), {Timed(0, 1)}, other), true);
  EXPECT_EQ(index.List("", 10, {}, "").tunings.size(), 3U);
  EXPECT_EQ(index.List(other, 10, {}, "").tunings.size(), 1U);
  EXPECT_EQ(index.List(kH200, 10, {}, "x=2x8").tunings.size(), 1U);
}

TEST(TuningIndex, HintComesFromTheSameModelOnly) {
  TuningIndex index;
  index.Put(TuningFor(Problem(1), {Timed(3, 1)}, "nvidia-t4,cc=7.5,sms=40,cudnn=9.19.0,lib=full"),
            true);
  EXPECT_EQ(index.FindHint(KeyOf(Problem(1))), nullptr);
  index.Put(TuningFor(Problem(1), {Finalized(1)},
                      "profile:nvidia-h200,cc=9.0,sms=132,cudnn=9.19.0,lib=full"),
            true);
  ASSERT_NE(index.FindHint(KeyOf(Problem(1))), nullptr);
  index.Put(
      TuningFor(Problem(1), {Timed(2, 10)}, "nvidia-h200,cc=9.0,sms=132,cudnn=9.18.0,lib=full"),
      true);
  EXPECT_EQ(index.FindHint(KeyOf(Problem(1)))->Winner(), "graph:eng2");
}

TEST(TuningIndex, PinStaysWhenItsTuningGoes) {
  TuningIndex index;
  index.Put(TuningFor(Problem(1)), true);
  index.SetPin({KeyOf(Problem(1)), EngineConfig{0, {}}, "why", absl::UnixEpoch(), std::nullopt});
  index.Erase(KeyOf(Problem(1)));
  EXPECT_NE(index.Find(KeyOf(Problem(1))).pin, nullptr);
  index.ErasePin(KeyOf(Problem(1)));
  EXPECT_EQ(index.Find(KeyOf(Problem(1))).pin, nullptr);
}

TEST(TuningIndex, ExpiredPinsAreNotListed) {
  TuningIndex index;
  const absl::Time now = absl::Now();
  index.SetPin({KeyOf(Problem(1)), EngineConfig{0, {}}, "old", now, now});
  EXPECT_THAT(index.ListPins("", now), IsEmpty());
  index.SetPin({KeyOf(Problem(1)), EngineConfig{0, {}}, "new", now, now + absl::Hours(1)});
  EXPECT_EQ(index.ListPins("", now).size(), 1U);
}

TEST(TuningIndex, BansAreHeededByWhatIsPutInAndByWhatIsLoaded) {
  TuningIndex index;
  index.BeginLoading([](const TuningKey&) { return absl::NotFoundError("not asked for"); });
  index.SetBans(BansOfPattern("eng2", 7));
  index.Load(TuningFor(Problem(1), {Timed(1, 20), Timed(2, 10)}));
  index.FinishLoading();
  index.Put(TuningFor(Problem(2), {Timed(1, 10), Timed(2, 20)}), true);
  EXPECT_EQ(index.Find(KeyOf(Problem(1))).tuning->Winner(), "graph:eng1");
  EXPECT_THAT(index.CountBanned(), ElementsAre(std::make_pair(7, 1)));
  index.SetBans({});
  index.Put(TuningFor(Problem(1), {Timed(1, 20), Timed(2, 10)}), true);
  EXPECT_EQ(index.Find(KeyOf(Problem(1))).tuning->Winner(), "graph:eng2");
  EXPECT_THAT(index.CountBanned(), IsEmpty());
}

TEST(TuningIndex, CountsByEnvironment) {
  TuningIndex index;
  index.Put(TuningFor(Problem(1)), true);
  index.Put(TuningFor(Problem(1)), true);
  index.Put(TuningFor(Problem(2)), true);
  EXPECT_THAT(index.Counts(), ElementsAre(std::make_pair(std::string(kH200), 2)));
}

}  // namespace
}  // namespace convtune::lookup

#include "server/lookup/judgement.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/candidates.h"

namespace convtune::lookup {
namespace {

using ::testing::Eq;
using ::testing::HasSubstr;
using ::testing::Optional;

const absl::Time kJudgedAt = absl::FromUnixSeconds(1'000'000);

jobs::Demand DemandOf(jobs::OnMiss on_miss, Evidence min_evidence = Evidence::kNone,
                      absl::Duration max_age = absl::InfiniteDuration()) {
  jobs::Demand demand;
  demand.on_miss = on_miss;
  demand.min_evidence = min_evidence;
  demand.max_age = max_age;
  return demand;
}

IndexHit HitOf(Evidence evidence, absl::Duration age = absl::Hours(1)) {
  Tuning tuning = TuningOf({Timed(0, 10)});
  tuning.evidence = evidence;
  tuning.tune_time = kJudgedAt - age;
  return {std::make_shared<IndexedTuning>(KeepAll(tuning)), nullptr};
}

LookupDecision DecisionOf(const IndexHit& known, const jobs::Demand& demand) {
  return Decide(known, ConvProblem::Parse(kProblem).value(), demand, /*profile=*/false, kJudgedAt,
                kJudgedAt);
}

// Of what is known, why it is not an answer; nullopt: it is one.
std::optional<v1::MissReason> VerdictOn(const IndexHit& known, const jobs::Demand& demand,
                                        bool profile = false, absl::Time asked = kJudgedAt) {
  const v1::BatchGetResult row =
      Decide(known, ConvProblem::Parse(kProblem).value(), demand, profile, asked, kJudgedAt).row;
  return row.has_answer() ? std::nullopt : std::optional(row.miss().reason());
}
std::optional<v1::MissReason> VerdictOn(Evidence evidence, const jobs::Demand& demand) {
  return VerdictOn(HitOf(evidence), demand);
}

TEST(Decide, TheLeastEvidenceIsWhatIsDemandedElseTheDefaultOfOnMiss) {
  using enum jobs::OnMiss;
  EXPECT_EQ(VerdictOn(Evidence::kHeuristic, DemandOf(kNone)), std::nullopt);
  EXPECT_EQ(VerdictOn(Evidence::kHeuristic, DemandOf(kHeuristic)), std::nullopt);
  EXPECT_EQ(VerdictOn(Evidence::kHeuristic, DemandOf(kEnqueue)),
            v1::MISS_REASON_INSUFFICIENT_EVIDENCE);
  EXPECT_EQ(VerdictOn(Evidence::kIncomplete, DemandOf(kTune)), std::nullopt);
  EXPECT_EQ(VerdictOn(Evidence::kIncomplete, DemandOf(kNone, Evidence::kMeasured)),
            v1::MISS_REASON_INSUFFICIENT_EVIDENCE);
  EXPECT_EQ(VerdictOn(Evidence::kMeasured, DemandOf(kNone, Evidence::kMeasured)), std::nullopt);
}

TEST(Decide, AProfileHasNoBetterThanAWholeList) {
  using enum jobs::OnMiss;
  Tuning listed = TuningOf({Timed(0, 10)});
  listed.evidence = Evidence::kHeuristic;
  const auto verdict = [&](jobs::OnMiss on_miss) {
    const IndexHit known = {std::make_shared<IndexedTuning>(KeepAll(listed)), nullptr};
    return VerdictOn(known, DemandOf(on_miss), /*profile=*/true);
  };
  EXPECT_EQ(verdict(kTune), std::nullopt);
  listed.incomplete_reasons = ReasonBit(IncompleteReason::kFirstConfigsOnly);
  EXPECT_EQ(verdict(kTune), v1::MISS_REASON_INSUFFICIENT_EVIDENCE);
  EXPECT_EQ(verdict(kHeuristic), std::nullopt);
}

TEST(Decide, AnAnswerOfTheDemandedAgeIsTooOldUnlessItIsPinned) {
  const jobs::Demand demand = DemandOf(jobs::OnMiss::kNone, Evidence::kNone, absl::Hours(1));
  IndexHit known = HitOf(Evidence::kMeasured);
  EXPECT_EQ(VerdictOn(known, demand), v1::MISS_REASON_TOO_OLD);
  EXPECT_EQ(VerdictOn(known, demand, false, kJudgedAt - absl::Nanoseconds(1)), std::nullopt);
  Pin pin;
  pin.candidate = known.tuning->tuning.candidates[0].id;
  known.pin = std::make_shared<const Pin>(pin);
  EXPECT_EQ(VerdictOn(known, demand), std::nullopt);
}

TEST(BetterWork, WhatIsKnownIsTunedAgainWhereMoreIsDemanded) {
  using enum jobs::OnMiss;
  const auto work = [](const IndexHit& known, const jobs::Demand& demand) {
    return BetterWork(known, demand, /*profile=*/false, kJudgedAt);
  };
  const IndexHit incomplete = HitOf(Evidence::kIncomplete);
  EXPECT_THAT(work({}, DemandOf(kTune)), Optional(Eq(jobs::WorkKind::kTune)));
  EXPECT_EQ(work({}, DemandOf(kNone)), std::nullopt);
  EXPECT_EQ(work(incomplete, DemandOf(kTune)), std::nullopt);
  EXPECT_THAT(work(incomplete, DemandOf(kEnqueue, Evidence::kMeasured)),
              Optional(Eq(jobs::WorkKind::kTune)));
  EXPECT_THAT(
      work(HitOf(Evidence::kMeasured), DemandOf(kTune, Evidence::kNone, absl::ZeroDuration())),
      Optional(Eq(jobs::WorkKind::kTune)));
  EXPECT_THAT(work(HitOf(Evidence::kMeasured, -absl::Hours(24)),
                   DemandOf(kTune, Evidence::kNone, absl::ZeroDuration())),
              Optional(Eq(jobs::WorkKind::kTune)))
      << "of a node whose clock is ahead";
  jobs::Demand list = DemandOf(kTune);
  list.options.list_only = true;
  EXPECT_EQ(work(incomplete, list), std::nullopt);
  EXPECT_THAT(work({}, list), Optional(Eq(jobs::WorkKind::kListAll)));
}

TEST(Decide, AMissSaysWhatIsKnownAndWhatIsAskedFor) {
  using enum jobs::OnMiss;
  const LookupDecision weak =
      DecisionOf(HitOf(Evidence::kIncomplete), DemandOf(kNone, Evidence::kMeasured));
  EXPECT_THAT(weak.row.miss().message(),
              HasSubstr("what is known is incomplete, asked for is at least measured"));
  EXPECT_EQ(weak.work, std::nullopt);
  const LookupDecision old = DecisionOf(HitOf(Evidence::kMeasured, absl::Hours(30)),
                                        DemandOf(kTune, Evidence::kNone, absl::Hours(24)));
  EXPECT_EQ(old.row.miss().reason(), v1::MISS_REASON_TOO_OLD);
  EXPECT_EQ(old.row.miss().message(), "what is known is 30h old, asked for is less than 24h");
  EXPECT_EQ(old.work, jobs::WorkKind::kTune);
}

TEST(Decide, AGuessThatIsTooOldMakesWayForAGuessAndAMeasurementDoesNot) {
  const jobs::Demand demand = DemandOf(jobs::OnMiss::kHeuristic, Evidence::kNone, absl::Minutes(1));
  EXPECT_EQ(DecisionOf(HitOf(Evidence::kHeuristic), demand).work, jobs::WorkKind::kListAll);
  EXPECT_EQ(DecisionOf(HitOf(Evidence::kMeasured), demand).work, std::nullopt);
}

TEST(Decide, AnAnswerHasNoWorkAndSaysWhetherItDependsOnTime) {
  IndexHit known = HitOf(Evidence::kMeasured);
  jobs::Demand demand = DemandOf(jobs::OnMiss::kTune);
  const LookupDecision hit = DecisionOf(known, demand);
  EXPECT_TRUE(hit.row.has_answer());
  EXPECT_EQ(hit.work, std::nullopt);
  EXPECT_FALSE(hit.depends_on_time);
  Pin pin;
  known.pin = std::make_shared<const Pin>(pin);
  EXPECT_FALSE(DecisionOf(known, demand).depends_on_time);
  pin.expire_time = kJudgedAt + absl::Hours(1);
  known.pin = std::make_shared<const Pin>(pin);
  EXPECT_TRUE(DecisionOf(known, demand).depends_on_time);
  known.pin = nullptr;
  demand.max_age = absl::Hours(2);
  EXPECT_TRUE(DecisionOf(known, demand).depends_on_time);
}

}  // namespace
}  // namespace convtune::lookup

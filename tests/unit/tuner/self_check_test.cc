// Self-checks of workers, and their consequences.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "proto/base/clock.h"
#include "proto/model/tuning/conditions.h"
#include "tests/unit/tuner/tuner_fixture.h"

namespace convtune::tuner {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr uint32_t kHold = static_cast<uint32_t>(SelfCheckBit::kBlockingKernel);
constexpr uint32_t kClock = static_cast<uint32_t>(SelfCheckBit::kClock);
constexpr uint32_t kChecker = static_cast<uint32_t>(SelfCheckBit::kChecker);
constexpr uint32_t kCaptures = static_cast<uint32_t>(SelfCheckBit::kCaptures);
constexpr uint32_t kCaches = static_cast<uint32_t>(SelfCheckBit::kCaches);

class SelfCheckTest : public TunerTest {
 protected:
  SelfCheckTest() { options_.self_checks_path = Path("self_checks"); }
  ~SelfCheckTest() override { std::filesystem::remove(Path("self_checks")); }

  v1::Device Device() { return tuner_->ListDevices().at(0); }
};

TEST_F(SelfCheckTest, WhatWorksIsSaidOfTheDeviceAndInTheTuning) {
  Start("self_check=0");
  EXPECT_FALSE(Device().has_self_check());
  Tune({Problem(1)});
  const Tuning tuning = Tuned();
  EXPECT_EQ(tuning.evidence, Evidence::kMeasured);
  EXPECT_EQ(tuning.conditions.self_check, 1U);
  EXPECT_TRUE(Device().self_check().known());
  EXPECT_EQ(Device().self_check().details(), "as the script says");
}

TEST_F(SelfCheckTest, AWorkerThatChecksNothingIsNotSaidToHave) {
  EXPECT_EQ(TuneOn("").conditions.self_check, 0U);
  EXPECT_FALSE(Device().has_self_check());
}

TEST_F(SelfCheckTest, WithoutAClockNothingIsMeasured) {
  const Tuning tuning = TuneOn(absl::StrCat("legacy=2;self_check=", kClock));
  EXPECT_EQ(tuning.evidence, Evidence::kHeuristic);
  EXPECT_EQ(tuning.conditions.self_check, 1 | kClock);
  EXPECT_TRUE(tuning.has(IncompleteReason::kNoClock));
  EXPECT_THAT(tuning.incomplete_message, HasSubstr("clock failed its self-check"));
  EXPECT_THAT(tuning.candidates, Contains(Field(&Candidate::status, CandidateStatus::kFinalized)));
  for (const Candidate& candidate : tuning.candidates) EXPECT_FALSE(candidate.timed());
  EXPECT_EQ(Requests("measure"), 0);
  EXPECT_EQ(Requests("check"), 0);
  EXPECT_EQ(Requests("legacy_listing"), 0);
  // Tuning again gives no more, so a caller who waits for it learns why.
  const auto waited = LookupOne(Problem(1), jobs::OnMiss::kTune);
  ASSERT_TRUE(waited.has_miss());
  EXPECT_THAT(waited.miss().message(), HasSubstr("clock failed its self-check"));
  EXPECT_TRUE(LookupOne(Problem(1), jobs::OnMiss::kNone).has_answer());
}

TEST_F(SelfCheckTest, WithoutAClockTheOverrideMeasuresAndMarksWhatItMeasured) {
  setenv("CONVTUNE_MEASURE_DESPITE_SELF_CHECK", "1", 1);
  const Tuning tuning = TuneOn(absl::StrCat("legacy=2;self_check=", kClock));
  unsetenv("CONVTUNE_MEASURE_DESPITE_SELF_CHECK");
  EXPECT_EQ(tuning.evidence, Evidence::kIncomplete);
  EXPECT_EQ(tuning.conditions.self_check, 1 | kClock);
  EXPECT_TRUE(tuning.has(IncompleteReason::kNoClock));
  EXPECT_THAT(tuning.incomplete_message, HasSubstr("what is measured may be wrong"));
  EXPECT_TRUE(tuning.candidates[0].timed());
  EXPECT_EQ(Requests("legacy_listing"), 1);
}

TEST_F(SelfCheckTest, ACheckerThatFindsNoFaultsBlamesNobody) {
  const Tuning tuning = TuneOn(absl::StrCat("legacy=2;wrong=-2;self_check=", kChecker));
  EXPECT_EQ(tuning.evidence, Evidence::kHeuristic);
  EXPECT_TRUE(tuning.has(IncompleteReason::kUnjudged));
  EXPECT_TRUE(tuning.has(IncompleteReason::kGraphStockUnjudged));
  EXPECT_TRUE(tuning.has(IncompleteReason::kLegacyStockUnjudged));
  EXPECT_EQ(Requests("measure"), 0);
  int unjudged = 0;
  for (const Candidate& candidate : tuning.candidates) {
    EXPECT_NE(candidate.status, CandidateStatus::kQuarantined) << ToText(candidate.id);
    unjudged += candidate.status == CandidateStatus::kUnjudged ? 1 : 0;
  }
  EXPECT_EQ(unjudged, 8);  // of ten, all but the stock choices
}

TEST_F(SelfCheckTest, WithoutCapturesThereAreNoReplaysAndAllElseIsAsEver) {
  const Tuning tuning = TuneOn(absl::StrCat("wrong=1;self_check=", kCaptures));
  EXPECT_EQ(tuning.evidence, Evidence::kMeasured);
  EXPECT_THAT(FailedInstruments(tuning.conditions.self_check), ElementsAre("captures"));
  int quarantined = 0;
  for (const Candidate& candidate : tuning.candidates) {
    EXPECT_EQ(candidate.capture, CaptureSupport::kUnknown);
    for (const TimeSummary& time : candidate.other_times) {
      EXPECT_EQ(time.launch, LaunchMode::kEager);
    }
    quarantined += candidate.status == CandidateStatus::kQuarantined ? 1 : 0;
  }
  EXPECT_EQ(quarantined, 1);
}

TEST_F(SelfCheckTest, WithoutAFlushAllTimesAreOfHotCaches) {
  // Times by cache state, and how many are of replays.
  const auto count = [](const Tuning& tuning) {
    std::map<CacheState, int> times;
    int replays = 0;
    for (const Candidate& candidate : tuning.candidates) {
      for (const TimeSummary& time : candidate.other_times) {
        ++times[time.cache_state];
        replays += time.launch == LaunchMode::kGraphCapture ? 1 : 0;
      }
    }
    return std::pair(times, replays);
  };
  const Tuning before = TuneOn("self_check=0");
  EXPECT_EQ(before.cache_state, CacheState::kInputHot);
  EXPECT_GT(count(before).first[CacheState::kCold], 0);
  driver_ = "another";
  const Tuning tuning = TuneOn(absl::StrCat("self_check=", kCaches));
  EXPECT_EQ(tuning.cache_state, CacheState::kHot);
  auto [times, replays] = count(tuning);
  EXPECT_EQ(times[CacheState::kCold] + times[CacheState::kInputHot], 0);
  EXPECT_GT(replays, 0);
  EXPECT_EQ(tuning.evidence, Evidence::kMeasured);
}

TEST_F(SelfCheckTest, ATuningWithoutBlockingKernelsSaysSo) {
  const Tuning tuning = TuneOn(absl::StrCat("self_check=", kHold));
  EXPECT_EQ(tuning.evidence, Evidence::kMeasured);
  EXPECT_THAT(FailedInstruments(tuning.conditions.self_check), ElementsAre("blocking_kernel"));
}

TEST_F(SelfCheckTest, OneThatPassedIsNotRunAgain) {
  TuneOn("self_check=0");
  EXPECT_EQ(Requests("self_check"), 1);
  Restart("self_check=0");
  EXPECT_TRUE(Device().self_check().known());
  Tune({Problem(1)}, /*force=*/true);
  EXPECT_EQ(Tuned().conditions.self_check, 1U);
  EXPECT_EQ(Requests("hello"), 2);
  EXPECT_EQ(Requests("self_check"), 1);
  // Its result holds for one driver.
  driver_ = "580.159";
  TuneOn("self_check=0");
  EXPECT_EQ(Requests("self_check"), 2);
}

TEST_F(SelfCheckTest, OneThatFailedIsRunAgain) {
  TuneOn(absl::StrCat("self_check=", kClock));
  EXPECT_EQ(TuneOn("self_check=0").evidence, Evidence::kMeasured);
  EXPECT_EQ(Requests("self_check"), 2);
}

TEST_F(SelfCheckTest, AFileThatCannotBeReadIsAnEmptyOne) {
  std::ofstream(Path("self_checks")) << "no message \xff\xff";
  EXPECT_EQ(TuneOn("self_check=0").conditions.self_check, 1U);
  TuneOn("self_check=0");
  EXPECT_EQ(Requests("self_check"), 1);
}

TEST_F(SelfCheckTest, AStepThatTakesItsWorkerDownIsLeftOut) {
  const std::string script = "self_check=0;fault=segv;where=self_check;index=5";
  EXPECT_THAT(FailedInstruments(TuneOn(script).conditions.self_check), ElementsAre("captures"));
  EXPECT_EQ(Device().worker_starts(), 2);
  // Another daemon tries it again: the step may have been slow for once.
  TuneOn(script);
  EXPECT_EQ(Device().worker_starts(), 2);
}

TEST_F(SelfCheckTest, AStepThatHangsIsLeftOut) {
  options_.hang_timeout = absl::Seconds(3);
  const std::string script = "self_check=0;fault=hang;where=self_check;index=2";
  const Tuning tuning = TuneOn(script);
  EXPECT_EQ(tuning.evidence, Evidence::kHeuristic);
  EXPECT_THAT(FailedInstruments(tuning.conditions.self_check), ElementsAre("clock"));
  EXPECT_EQ(Device().worker_starts(), 2);
}

TEST_F(SelfCheckTest, AStepThatTookAWorkerDownOnceIsLeftOutToo) {
  EXPECT_THAT(FailedInstruments(
                  TuneOn(absl::StrCat("self_check=0;fault=segv;where=self_check;index=4;once=",
                                      Path("once")))
                      .conditions.self_check),
              ElementsAre("checker"));
  EXPECT_EQ(Device().worker_starts(), 2);
}

TEST_F(SelfCheckTest, AKillFromOutsideIsNoFaultOfTheStep) {
  EXPECT_EQ(
      TuneOn(absl::StrCat("self_check=0;fault=killed;where=self_check;index=1;once=", Path("once")))
          .conditions.self_check,
      1U);
  EXPECT_EQ(Device().worker_starts(), 2);
}

}  // namespace
}  // namespace convtune::tuner

#include "server/worker/verify/self_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/worker/cudnn/legacy_notes.h"
#include "server/worker/gpu_self_check.h"
#include "tests/unit/worker/verify/fake_self_check_device.h"

namespace convtune::worker::verify {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::IsSupersetOf;
using testing::Not;

constexpr SelfCheckCell kGraphForward = {Api::kGraph, Operation::kFwd, true};
constexpr SelfCheckCell kLegacyFilter = {Api::kLegacy, Operation::kBwdFilter, false};

class SelfCheckTest : public testing::Test {
 protected:
  SelfCheckTest() {
    options_.on_step = [this](uint32_t step) {
      steps_.push_back(step);
      return step_status_;
    };
    options_.limit = absl::InfiniteDuration();
  }

  SelfCheck Checked() {
    absl::StatusOr<SelfCheck> check = RunSelfCheck(options_, &card_);
    EXPECT_TRUE(check.ok()) << check.status();
    return *std::move(check);
  }
  std::vector<std::string> Failed() { return FailedInstruments(ToMask(Checked())); }

  FakeSelfCheckDevice card_;
  SelfCheckOptions options_;
  std::vector<uint32_t> steps_;
  absl::Status step_status_;
};

TEST_F(SelfCheckTest, ASoundCardPasses) {
  const SelfCheck check = Checked();
  EXPECT_EQ(ToMask(check), 1U) << check.details;
  EXPECT_EQ(steps_.size(), 4U + SelfCheckCells().size());
  for (const char* const line :
       {"blocking kernel: works", "clock: works", "caches: works", "graph:fwd:f32: works",
        "legacy:bwd_filter:f16: works", "checker: works"}) {
    EXPECT_THAT(check.details, HasSubstr(line));
  }
}

TEST_F(SelfCheckTest, ABlockingKernelThatGivesUpIsNotUsed) {
  card_.blocking_gives_up = true;
  const SelfCheck check = Checked();
  EXPECT_FALSE(check.blocking_kernel);
  EXPECT_THAT(check.details, HasSubstr("it gave up before it was released"));
  // The others do without it.
  EXPECT_THAT(FailedInstruments(ToMask(check)), ElementsAre("blocking_kernel"));
}

TEST_F(SelfCheckTest, AWaitInTheTimeOfWhatWaitsIsFound) {
  card_.wait_is_counted = true;
  EXPECT_FALSE(Checked().blocking_kernel);
}

TEST_F(SelfCheckTest, EventsThatRunAtAnotherRateFailTheClock) {
  card_.event_rate = 1.02;
  const SelfCheck check = Checked();
  EXPECT_FALSE(check.clock);
  EXPECT_FALSE(MayMeasure(check));
  EXPECT_THAT(check.details, HasSubstr("events do not agree"));
}

TEST_F(SelfCheckTest, LaunchingBetweenEventsDoesNotFailTheClock) {
  card_.launch_us = 20;
  EXPECT_TRUE(Checked().clock);
}

TEST_F(SelfCheckTest, AGlobaltimerThatRunsAtAnotherRateFailsTheClock) {
  card_.timer_rate = 1.5;
  const SelfCheck check = Checked();
  EXPECT_FALSE(check.clock);
  EXPECT_THAT(check.details, HasSubstr("globaltimer does not agree"));
}

TEST_F(SelfCheckTest, AGlobaltimerThatStandsStillFailsTheClock) {
  card_.timer_rate = 0;
  EXPECT_FALSE(Checked().clock);
}

TEST_F(SelfCheckTest, AnSmClockThatIsNoneFailsTheClock) {
  card_.sm_clock_mhz = 199;
  EXPECT_FALSE(Checked().clock);
  card_.sm_clock_mhz = 2501;
  EXPECT_FALSE(Checked().clock);
  card_.sm_clock_mhz = 210;
  EXPECT_TRUE(Checked().clock);
}

TEST_F(SelfCheckTest, AFlushThatEvictsNothingIsFound) {
  card_.cold_us = card_.hot_us;
  const SelfCheck check = Checked();
  EXPECT_FALSE(check.caches);
  EXPECT_FALSE(MayClaimCold(check));
  EXPECT_THAT(FailedInstruments(ToMask(check)), ElementsAre("caches"));
}

TEST_F(SelfCheckTest, AFlushOfAnImpossibleRateIsFound) {
  card_.flush_us = 10;
  EXPECT_FALSE(Checked().caches);
  card_.flush_us = 200;
  EXPECT_FALSE(Checked().caches);
}

TEST_F(SelfCheckTest, ACardWithoutAKnownCacheClaimsNothing) {
  card_.flush_size = 0;
  EXPECT_THAT(Failed(), ElementsAre("caches"));
}

TEST_F(SelfCheckTest, AWrongResultFailsItsCellAlone) {
  CheckedRun wrong = FakeSelfCheckDevice::Exact();
  wrong.error = 1e-7;
  card_.known.emplace(Name(kLegacyFilter), wrong);
  const SelfCheck check = Checked();
  EXPECT_EQ(check.failed_cells, CellBit(kLegacyFilter));
  EXPECT_FALSE(MayJudge(check, Api::kLegacy, Operation::kBwdFilter, DataType::kF32));
  EXPECT_FALSE(MayJudge(check, Api::kLegacy, Operation::kBwdFilter, DataType::kF64));
  EXPECT_TRUE(MayJudge(check, Api::kLegacy, Operation::kBwdFilter, DataType::kF16));
  EXPECT_TRUE(MayJudge(check, Api::kGraph, Operation::kBwdFilter, DataType::kF32));
}

TEST_F(SelfCheckTest, ACellThatCannotBeJudgedFails) {
  CheckedRun nothing_compared;
  card_.known.emplace(Name(kLegacyFilter), nothing_compared);
  card_.known.emplace(Name(kGraphForward), absl::InternalError("CUDNN_STATUS_EXECUTION_FAILED"));
  const SelfCheck check = Checked();
  EXPECT_EQ(check.failed_cells, CellBit(kLegacyFilter) | CellBit(kGraphForward));
  EXPECT_THAT(check.details, HasSubstr("graph:fwd:f16: CUDNN_STATUS_EXECUTION_FAILED"));
}

TEST_F(SelfCheckTest, NonfiniteAndOutOfBoundsFailACell) {
  CheckedRun nonfinite = FakeSelfCheckDevice::Exact();
  nonfinite.nonfinite = 1;
  CheckedRun beyond = FakeSelfCheckDevice::Exact();
  beyond.out_of_bounds = "output: 1 bytes";
  card_.known.emplace(Name(kLegacyFilter), nonfinite);
  card_.known.emplace(Name(kGraphForward), beyond);
  EXPECT_THAT(Failed(), ElementsAre("graph:fwd:f16", "legacy:bwd_filter:f32"));
}

TEST_F(SelfCheckTest, APlantedFaultThatIsNotFoundFailsTheChecker) {
  for (const PlantedFault fault :
       {PlantedFault::kByteBehind, PlantedFault::kNan, PlantedFault::kWrongElement}) {
    card_.blind_to = {fault};
    const SelfCheck check = Checked();
    EXPECT_FALSE(check.checker);
    EXPECT_FALSE(MayJudge(check, Api::kGraph, Operation::kFwd, DataType::kF16));
    EXPECT_THAT(check.details, HasSubstr("was not found"));
  }
}

TEST_F(SelfCheckTest, ARightOutputThatIsFoundWrongFailsTheChecker) {
  card_.unfounded_error = 0.25;
  EXPECT_THAT(Failed(), ElementsAre("checker"));
}

TEST_F(SelfCheckTest, AStreamThatAFailedCaptureSpoilsFailsTheChecker) {
  card_.after_capture = absl::InternalError("CUDNN_STATUS_EXECUTION_FAILED");
  const SelfCheck check = Checked();
  EXPECT_THAT(FailedInstruments(ToMask(check)), ElementsAre("checker"));
  EXPECT_THAT(check.details, HasSubstr("after a capture that failed"));
  CheckedRun wrong = FakeSelfCheckDevice::Exact();
  wrong.error = 0.5;
  card_.after_capture = wrong;
  EXPECT_THAT(Failed(), ElementsAre("checker"));
}

TEST_F(SelfCheckTest, AnErrorOfTheCardFailsTheInstrumentWithItsWords) {
  card_.read_status = absl::InternalError("cudaErrorLaunchFailure");
  const SelfCheck check = Checked();
  EXPECT_THAT(FailedInstruments(ToMask(check)), ElementsAre("blocking_kernel", "clock", "caches"));
  EXPECT_THAT(check.details, HasSubstr("clock: cudaErrorLaunchFailure"));
  card_.read_status = absl::OkStatus();
  card_.wait_status = absl::InternalError("cudaErrorECCUncorrectable");
  EXPECT_THAT(Failed(), ElementsAre("blocking_kernel", "clock", "caches"));
}

TEST_F(SelfCheckTest, AStepThatAWorkerWasLostInIsLeftOutAndCountsAsFailed) {
  options_.lost_steps = static_cast<uint32_t>(SelfCheckBit::kClock) | CellBit(kGraphForward);
  EXPECT_THAT(Failed(), ElementsAre("clock", "graph:fwd:f16"));
  EXPECT_THAT(steps_, Not(testing::Contains(CellBit(kGraphForward))));
  EXPECT_EQ(steps_.size(), 2U + SelfCheckCells().size());
}

TEST_F(SelfCheckTest, KnownConvolutionsThatThereIsNoTimeForFail) {
  options_.limit = absl::ZeroDuration();
  const SelfCheck check = Checked();
  EXPECT_EQ(FailedInstruments(ToMask(check)).size(), SelfCheckCells().size());
  EXPECT_TRUE(check.checker);
  EXPECT_THAT(check.details, HasSubstr("was not reached within"));
}

TEST_F(SelfCheckTest, ADaemonThatIsGoneEndsIt) {
  step_status_ = absl::UnavailableError("gone");
  EXPECT_EQ(RunSelfCheck(options_, &card_).status(), step_status_);
  EXPECT_EQ(steps_.size(), 1U);
}

TEST(KnownProblemTest, EveryCellHasOneOfItsOwnThatBothApisTake) {
  for (const SelfCheckCell& cell : SelfCheckCells()) {
    const absl::StatusOr<ConvProblem> problem = ConvProblem::Parse(KnownProblem(cell));
    ASSERT_TRUE(problem.ok()) << Name(cell) << ": " << problem.status();
    EXPECT_EQ(problem->operation(), cell.operation);
    EXPECT_EQ(IsNarrow(problem->data_type()), cell.narrow);
    EXPECT_EQ(problem->x_dims(), (std::vector<int64_t>{2, 8, 9, 7}));
    EXPECT_EQ(problem->y_dims(), (std::vector<int64_t>{2, 16, 5, 4}));
    EXPECT_THAT(cudnn::LegacyObstacle(*problem), IsEmpty());
  }
}

}  // namespace
}  // namespace convtune::worker::verify

#include "server/worker/verify/self_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/worker/verify/fake_self_check_device.h"

namespace convtune::worker::verify {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class SelfCheckTest : public testing::Test {
 protected:
  SelfCheckTest() {
    on_step_ = [this](uint32_t step) {
      steps_.push_back(step);
      return step_status_;
    };
  }

  SelfCheck Checked() {
    absl::StatusOr<SelfCheck> check = RunSelfCheck(lost_steps_, on_step_, card_.Device());
    EXPECT_TRUE(check.ok()) << check.status();
    return *std::move(check);
  }
  std::vector<std::string> Failed() { return FailedInstruments(Checked().mask); }

  FakeSelfCheckDevice card_;
  uint32_t lost_steps_ = 0;
  std::function<absl::Status(uint32_t step)> on_step_;
  std::vector<uint32_t> steps_;
  absl::Status step_status_;
};

TEST_F(SelfCheckTest, ASoundCardPasses) {
  const SelfCheck check = Checked();
  EXPECT_EQ(check.mask, 1U) << check.details;
  EXPECT_THAT(steps_, ElementsAre(2U, 4U, 8U, 16U, 32U));
  for (const char* const line : {"blocking kernel: works", "clock: works", "caches: works",
                                 "checker: works", "captures: works"}) {
    EXPECT_THAT(check.details, HasSubstr(line));
  }
}

// What fails for each fault of the card, and what fails for none; the instruments do without each
// other.
TEST_F(SelfCheckTest, EachFaultFailsTheInstrumentThatItIsOf) {
  using Card = FakeSelfCheckDevice;
  const auto blind = [](PlantedFault fault) {
    return [fault](Card* card) { card->blind_to = {fault}; };
  };
  const struct {
    const char* what;
    std::function<void(Card* card)> set;
    std::vector<std::string> failed;
    const char* details = "";
  } rows[] = {
      {"a blocking kernel that gives up",
       [](Card* c) { c->blocking_gives_up = true; },
       {"blocking_kernel"},
       "it gave up before it was released"},
      {"a wait in the time of what waits",
       [](Card* c) { c->wait_is_counted = true; },
       {"blocking_kernel"}},
      {"events of another rate",
       [](Card* c) { c->event_rate = 1.02; },
       {"clock"},
       "events do not agree"},
      {"launching between events", [](Card* c) { c->launch_us = 20; }, {}},
      {"a globaltimer of another rate",
       [](Card* c) { c->timer_rate = 1.5; },
       {"clock"},
       "globaltimer does not agree"},
      {"a globaltimer that stands still", [](Card* c) { c->timer_rate = 0; }, {"clock"}},
      {"a fast SM clock", [](Card* c) { c->sm_clock_mhz = 2745; }, {}},
      {"an idle GPU, brought to its clocks", [](Card* c) { c->idle_until_us = 10'000; }, {}},
      {"a flush that evicts nothing", [](Card* c) { c->cold_us = c->hot_us; }, {"caches"}},
      {"a flush that is too fast", [](Card* c) { c->flush_us = 10; }, {"caches"}},
      {"a flush that is too slow", [](Card* c) { c->flush_us = 400; }, {"caches"}},
      {"a memory that is nearly as fast as L2",
       [](Card* c) { c->hot_us = 5.5, c->cold_us = 7.1; },
       {}},
      {"a memory whose rate is not known, so that it judges no flush",
       [](Card* c) { c->memory_rate = 0, c->flush_us = 1000; },
       {}},
      {"no known cache", [](Card* c) { c->flush_size = 0; }, {"caches"}},
      {"a byte behind", blind(PlantedFault::kByteBehind), {"checker"}, "was not found"},
      {"a NaN", blind(PlantedFault::kNan), {"checker"}, "was not found"},
      {"a wrong element", blind(PlantedFault::kWrongElement), {"checker"}, "was not found"},
      {"a right output found wrong", [](Card* c) { c->unfounded_error = 0.25; }, {"checker"}},
  };
  for (const auto& row : rows) {
    Card card;
    row.set(&card);
    const SelfCheck check = RunSelfCheck(0, on_step_, card.Device()).value();
    EXPECT_EQ(FailedInstruments(check.mask), row.failed) << row.what << ": " << check.details;
    EXPECT_THAT(check.details, HasSubstr(row.details)) << row.what;
  }
}

TEST_F(SelfCheckTest, AFlushIsJudgedByTheCardsOwnMemory) {
  // T4: 4 MiB of L2, 320 GB/s; B200: 126 MiB, 8 TB/s.
  for (const auto& [l2_bytes, rate] :
       {std::pair{int64_t{4} << 20, 320e9}, {int64_t{126} << 20, 8e12}}) {
    card_.flush_size = 2 * l2_bytes;
    card_.memory_rate = rate;
    card_.flush_us = 1e6 * static_cast<double>(card_.flush_size) / (0.85 * rate);
    const SelfCheck check = Checked();
    EXPECT_TRUE(check.works(SelfCheckBit::kCaches)) << check.details;
  }
}

TEST(CacheBytesTest, AreLessThanHalfOfL2) {
  EXPECT_EQ(CacheBytes(int64_t{4} << 20), (int64_t{4} << 20) / 3);
  EXPECT_EQ(CacheBytes(int64_t{50} << 20), (int64_t{50} << 20) / 3);
  EXPECT_GT(CacheBytes(0), 0);
}

TEST_F(SelfCheckTest, AStreamThatAFailedCaptureSpoilsTurnsCapturesOffAndNothingElse) {
  worker::v1::Checked wrong = FakeSelfCheckDevice::Exact();
  wrong.set_error(0.5);
  worker::v1::Checked nonfinite = FakeSelfCheckDevice::Exact();
  nonfinite.set_nonfinite(1);
  worker::v1::Checked beyond = FakeSelfCheckDevice::Exact();
  beyond.set_out_of_bounds("output: 1 bytes");
  const absl::StatusOr<worker::v1::Checked> runs[] = {
      absl::InternalError("CUDNN_STATUS_EXECUTION_FAILED"), wrong, nonfinite, beyond,
      worker::v1::Checked()};
  for (const absl::StatusOr<worker::v1::Checked>& run : runs) {
    card_.after_capture = run;
    const SelfCheck check = Checked();
    EXPECT_THAT(FailedInstruments(check.mask), ElementsAre("captures")) << check.details;
    EXPECT_FALSE(check.works(SelfCheckBit::kCaptures));
    EXPECT_TRUE(check.works(SelfCheckBit::kChecker));
  }
  EXPECT_THAT(Checked().details, HasSubstr("captures: nothing could be compared"));
}

TEST_F(SelfCheckTest, NothingIsTriedBehindTheSpoiltCapture) {
  on_step_ = [this](uint32_t) {
    EXPECT_FALSE(card_.capture_was_spoilt);
    return absl::OkStatus();
  };
  EXPECT_THAT(Failed(), IsEmpty());
  EXPECT_TRUE(card_.capture_was_spoilt);
}

TEST_F(SelfCheckTest, AnErrorOfTheCardFailsTheInstrumentWithItsWords) {
  card_.read_status = absl::InternalError("cudaErrorLaunchFailure");
  const SelfCheck check = Checked();
  EXPECT_THAT(FailedInstruments(check.mask), ElementsAre("blocking_kernel", "clock", "caches"));
  EXPECT_THAT(check.details, HasSubstr("clock: cudaErrorLaunchFailure"));
  card_.read_status = absl::OkStatus();
  card_.wait_status = absl::InternalError("cudaErrorECCUncorrectable");
  EXPECT_THAT(Failed(), ElementsAre("blocking_kernel", "clock", "caches"));
}

TEST_F(SelfCheckTest, AStepThatAWorkerWasLostInIsLeftOutAndCountsAsFailed) {
  lost_steps_ =
      static_cast<uint32_t>(SelfCheckBit::kClock) | static_cast<uint32_t>(SelfCheckBit::kCaptures);
  EXPECT_THAT(Failed(), ElementsAre("clock", "captures"));
  EXPECT_THAT(steps_, ElementsAre(2U, 8U, 16U));
}

TEST_F(SelfCheckTest, ADaemonThatIsGoneEndsIt) {
  step_status_ = absl::UnavailableError("gone");
  EXPECT_EQ(RunSelfCheck(lost_steps_, on_step_, card_.Device()).status(), step_status_);
  EXPECT_EQ(steps_.size(), 1U);
}

}  // namespace
}  // namespace convtune::worker::verify

// What cuDNN's legacy heuristic lists first, from the worker to the answer.
#include <algorithm>
#include <map>
#include <string>

#include "gtest/gtest.h"
#include "tests/unit/tuner/tuner_fixture.h"

namespace convtune::tuner {
namespace {

class LegacyStockTest : public TunerTest {
 protected:
  v1::Answer AnswerFor(Api api) {
    lookup::LookupRequest request = Request({Problem(1)}, jobs::OnMiss::kNone);
    request.demand.constraints.api = api;
    return Lookup(request).value().results.at(0).row.answer();
  }
};

TEST_F(LegacyStockTest, ItsOrderArrivesInTheTuning) {
  TuneOn("legacy=3");
  std::map<std::string, int> ranks;
  const Tuning tuning = Tuned();
  for (const Candidate& candidate : tuning.candidates) {
    if (ApiOf(candidate.id) == Api::kLegacy) ranks[ToText(candidate.id)] = candidate.heuristic_rank;
  }
  EXPECT_EQ(ranks,
            (std::map<std::string, int>{
                {"legacy:algo0,math0", 2}, {"legacy:algo1,math0", 1}, {"legacy:algo2,math0", 0}}));
}

// All three take the same time; the others need less workspace, and come before
// it in the fixed order.
TEST_F(LegacyStockTest, LegacyCallersKeepItWithinNoise) {
  TuneOn("legacy=3");
  EXPECT_EQ(AnswerFor(Api::kLegacy).winner().text(), "legacy:algo2,math0");
}

TEST_F(LegacyStockTest, LegacyCallersGetAnotherBeyondNoise) {
  TuneOn("legacy=3;legacy_slower_us=20");
  EXPECT_EQ(AnswerFor(Api::kLegacy).winner().text(), "legacy:algo0,math0");
}

// It is behind the other two by half of their time in every round.
TEST_F(LegacyStockTest, ItStaysInTheRaceToTheEnd) {
  TuneOn("legacy=3;legacy_slower_us=20");
  const Tuning tuning = Tuned();
  int most = 0;
  int stock = 0;
  for (const Candidate& candidate : tuning.candidates) {
    most = std::max(most, candidate.sample_count);
    if (ToText(candidate.id) == "legacy:algo2,math0") stock = candidate.sample_count;
  }
  EXPECT_GT(most, 0);
  EXPECT_EQ(stock, most);
}

// The check of all ten takes longer than the budget.
TEST_F(LegacyStockTest, ABudgetForAFewOfManyTimesItAllTheSame) {
  Start("legacy=3;candidates=7;check_delay_ms=400");
  EXPECT_EQ(RunJob(Within(absl::Seconds(2))).state(), v1::JOB_STATE_SUCCEEDED);
  const Tuning tuning = Tuned();
  int timed = 0;
  bool stock_timed = false;
  for (const Candidate& candidate : tuning.candidates) {
    timed += candidate.timed() ? 1 : 0;
    stock_timed =
        stock_timed || (candidate.timed() && ToText(candidate.id) == "legacy:algo2,math0");
  }
  EXPECT_TRUE(stock_timed);
  EXPECT_LT(timed, 6);
}

}  // namespace
}  // namespace convtune::tuner

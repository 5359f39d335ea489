#include "server/metrics/families.h"

#include <gtest/gtest.h>

#include "tests/unit/rpc/fake_tuner.h"

namespace convtune::metrics {
namespace {

// Tunings made at given minutes, one page each.
class PagedTuner : public rpc::FakeTuner {
 public:
  std::vector<std::shared_ptr<const lookup::IndexedTuning>> tunings;
  int calls = 0;
  int failing_call = 0;  // the number of the call that fails

  absl::StatusOr<lookup::TuningPage> ListTunings(const std::string&, int, const TuningKey& after,
                                                 const std::string&) override {
    if (++calls == failing_call) return absl::UnavailableError("the store is busy");
    lookup::TuningPage page;
    const size_t index = after.problem_text.empty() ? 0 : std::stoul(after.problem_text);
    if (index < tunings.size()) page.tunings.push_back(tunings[index]);
    page.more = index + 1 < tunings.size();
    return page;
  }

  void Add(const std::string& environment, Evidence evidence, int64_t minute) {
    Tuning tuning;
    tuning.key.problem_text = std::to_string(tunings.size() + 1);
    tuning.key.environment_text = environment + ",cc=9.0,sms=132,cudnn=9.19.0,lib=full";
    tuning.evidence = evidence;
    tuning.tune_time = absl::FromUnixSeconds(minute * 60);
    tunings.push_back(std::make_shared<const lookup::IndexedTuning>(lookup::KeepAll(tuning)));
  }
};

TEST(EvidenceCensus, CountsEveryPageByEnvironmentAndEvidence) {
  PagedTuner tuner;
  tuner.Add("b", Evidence::kMeasured, 30);
  tuner.Add("a", Evidence::kHeuristic, 10);
  tuner.Add("b", Evidence::kMeasured, 10);
  tuner.Add("b", Evidence::kIncomplete, 20);
  EvidenceCensus census(&tuner);
  std::map<std::string, EnvironmentCensus> all = census.Get();
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all["a"].tunings.at(Evidence::kHeuristic), 1);
  EXPECT_EQ(all["b"].tunings.at(Evidence::kMeasured), 2);
  EXPECT_EQ(all["b"].tunings.at(Evidence::kIncomplete), 1);
  EXPECT_EQ(all["b"].origins.at(Origin::kLocal), 3);
  EXPECT_EQ(all["b"].oldest, absl::FromUnixSeconds(600));
  EXPECT_EQ(all["b"].median, absl::FromUnixSeconds(1200));
}

TEST(EvidenceCensus, CountsAgainOnlyOnceItIsOld) {
  PagedTuner tuner;
  tuner.Add("a", Evidence::kMeasured, 1);
  constexpr absl::Duration kAge = absl::Milliseconds(300);
  EvidenceCensus census(&tuner, kAge);
  const SteadyTime before = SteadyTime::Now();
  census.Get();
  tuner.Add("a", Evidence::kMeasured, 2);
  const int64_t count = census.Get()["a"].tunings.at(Evidence::kMeasured);
  if (SteadyTime::Now() - before < kAge) {
    EXPECT_EQ(count, 1);
  }
  absl::SleepFor(kAge);
  EXPECT_EQ(census.Get()["a"].tunings.at(Evidence::kMeasured), 2);
  EXPECT_EQ(tuner.calls, 3);
}

TEST(EvidenceCensus, ACountThatFailedIsTriedAgainAtTheNextCall) {
  PagedTuner tuner;
  tuner.Add("a", Evidence::kMeasured, 1);
  tuner.Add("a", Evidence::kMeasured, 2);
  EvidenceCensus census(&tuner);
  tuner.failing_call = 2;  // half is counted by then
  EXPECT_TRUE(census.Get().empty());
  EXPECT_EQ(census.Get()["a"].tunings.at(Evidence::kMeasured), 2);
}

TEST(EvidenceCensus, NothingKnownIsNothing) {
  PagedTuner tuner;
  EXPECT_TRUE(EvidenceCensus(&tuner).Get().empty());
}

}  // namespace
}  // namespace convtune::metrics

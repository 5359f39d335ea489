#include "server/metrics/families.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/unit/rpc/fake_tuner.h"

namespace convtune::metrics {
namespace {

// Has tunings made at given minutes.
class ListingTuner : public rpc::FakeTuner {
 public:
  std::vector<std::shared_ptr<const lookup::IndexedTuning>> tunings;

  absl::StatusOr<lookup::TuningPage> ListTunings(const std::string&, int page_size,
                                                 const TuningKey&, const std::string&) override {
    if (!failure.ok()) return failure;
    lookup::TuningPage page{tunings, false};
    page.tunings.resize(std::min(page.tunings.size(), static_cast<size_t>(page_size)));
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

TEST(TakeCensus, CountsByEnvironmentAndEvidence) {
  ListingTuner tuner;
  tuner.Add("b", Evidence::kMeasured, 30);
  tuner.Add("a", Evidence::kHeuristic, 10);
  tuner.Add("b", Evidence::kMeasured, 10);
  tuner.Add("b", Evidence::kIncomplete, 20);
  std::map<std::string, EnvironmentCensus> all = TakeCensus(&tuner);
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all["a"].tunings.at(Evidence::kHeuristic), 1);
  EXPECT_EQ(all["b"].tunings.at(Evidence::kMeasured), 2);
  EXPECT_EQ(all["b"].tunings.at(Evidence::kIncomplete), 1);
  EXPECT_EQ(all["b"].origins.at(Origin::kLocal), 3);
  EXPECT_EQ(all["b"].oldest, absl::FromUnixSeconds(600));
  EXPECT_EQ(all["b"].median, absl::FromUnixSeconds(1200));
}

TEST(TakeCensus, NothingKnownIsNothing) {
  ListingTuner tuner;
  EXPECT_TRUE(TakeCensus(&tuner).empty());
  tuner.failure = absl::UnavailableError("the database is still being read");
  EXPECT_TRUE(TakeCensus(&tuner).empty());
}

}  // namespace
}  // namespace convtune::metrics

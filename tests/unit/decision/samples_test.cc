#include "server/decision/samples.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace convtune::decision {
namespace {

using ::testing::ElementsAre;

Series WithClocks(std::vector<double> clocks) {
  Series series;
  for (const double clock : clocks) series.push_back({10, clock});
  return series;
}

std::vector<bool> Valid(const Series& series) {
  std::vector<bool> valid;
  for (const RunSample& run : series) valid.push_back(run.valid());
  return valid;
}

TEST(DiscardSlowClocksTest, DropsTheRunThatThrottled) {
  std::vector<Series> series = {WithClocks({1700, 1400, 1700, 1700}),
                                WithClocks({1700, 1700, 1700, 1700}),
                                WithClocks({1700, 1710, 1690, 1700})};
  EXPECT_EQ(DiscardSlowClocks(&series), 1);
  EXPECT_THAT(Valid(series[0]), ElementsAre(true, false, true, true));
}

TEST(DiscardSlowClocksTest, KeepsRoundsThatAreSlowForAll) {
  std::vector<Series> series = {WithClocks({1700, 1400, 1700, 1700}),
                                WithClocks({1700, 1400, 1700, 1700})};
  EXPECT_EQ(DiscardSlowClocks(&series), 0);
}

TEST(DiscardSlowClocksTest, KeepsWhatAlwaysDrawsSoMuchPower) {
  std::vector<Series> series = {WithClocks({1400, 1410, 1390, 1400}),
                                WithClocks({1700, 1700, 1700, 1700}),
                                WithClocks({1700, 1700, 1700, 1700})};
  EXPECT_EQ(DiscardSlowClocks(&series), 0);
}

TEST(DiscardSlowClocksTest, KeepsEarlyRoundsOfWhatIsLeftAlone) {
  // The fast-clocked one left after four rounds.
  std::vector<Series> series = {WithClocks({1400, 1400, 1400, 1400, 1400, 1400, 1400, 1400}),
                                WithClocks({1700, 1700, 1700, 1700})};
  EXPECT_EQ(DiscardSlowClocks(&series), 0);
}

TEST(DiscardSlowClocksTest, WithoutClocksNothingIsDropped) {
  std::vector<Series> series = {WithClocks({0, 0}), WithClocks({0, 1700})};
  EXPECT_EQ(DiscardSlowClocks(&series), 0);
}

// 'h' is a blocked run, 'u' one that was not, '.' none.
Series OfKinds(const std::string& kinds) {
  Series series;
  for (const char kind : kinds) series.push_back({kind == '.' ? 0.0 : 10.0, 0, kind != 'u'});
  return series;
}

TEST(CountsBlockedTest, GoesByMostRunsOfACandidateAndMostCandidates) {
  EXPECT_TRUE(CountsBlocked(OfKinds("hhu.")));
  EXPECT_TRUE(CountsBlocked(OfKinds("hu")));
  EXPECT_FALSE(CountsBlocked(OfKinds("huu")));
  EXPECT_TRUE(CountsBlocked(Series()));
  // One candidate without a run has no vote.
  EXPECT_FALSE(CountsBlocked({OfKinds("uuuu"), OfKinds("uu"), OfKinds("hh"), OfKinds("...")}));
  EXPECT_TRUE(CountsBlocked({OfKinds("uuuu"), OfKinds("hh")}));
}

TEST(DiscardOtherKindTest, NoSeriesIsLeftWithBoth) {
  std::vector<Series> series = {OfKinds("hhuh"), OfKinds("uuuu"), OfKinds("hh")};
  DiscardOtherKind(&series);
  EXPECT_THAT(Valid(series[0]), ElementsAre(true, true, false, true));
  EXPECT_THAT(Valid(series[1]), ElementsAre(false, false, false, false));
  EXPECT_THAT(Valid(series[2]), ElementsAre(true, true));
}

}  // namespace
}  // namespace convtune::decision

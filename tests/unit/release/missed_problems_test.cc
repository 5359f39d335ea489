#include "server/release/missed_problems.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/candidates.h"

namespace convtune::release {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TuningKey Key(int n, const std::string& environment = kH200) {
  return {"problem " + std::to_string(n), environment};
}
absl::Time At(int seconds) { return absl::FromUnixSeconds(seconds); }

std::vector<std::string> Names(const MissedProblems& list) {
  std::vector<std::string> names;
  for (const WantedProblem& problem : list.MostWanted()) names.push_back(problem.key.problem_text);
  return names;
}

TEST(MissedProblems, MostWantedComesFirstAndAmongEqualsTheLastSeen) {
  MissedProblems list;
  list.AddMisses(Key(1), 2, At(10));
  list.AddMisses(Key(2), 5, At(20));
  list.AddMisses(Key(3), 1, At(30));
  list.AddMisses(Key(3), 1, At(40));
  EXPECT_THAT(Names(list), ElementsAre("problem 2", "problem 3", "problem 1"));
  const WantedProblem third = list.MostWanted()[1];
  EXPECT_EQ(third.first_seen, At(30));
  EXPECT_EQ(third.last_seen, At(40));
}

TEST(MissedProblems, AFullListDropsTheLeastWanted) {
  MissedProblems list(2);
  list.AddMisses(Key(1), 5, At(1));
  list.AddMisses(Key(2), 1, At(2));
  list.AddMisses(Key(3), 3, At(3));
  EXPECT_THAT(Names(list), ElementsAre("problem 1", "problem 3"));
}

TEST(MissedProblems, EnvironmentsAreBoundedToo) {
  MissedProblems list(10, 2);
  EXPECT_TRUE(list.AddMisses(Key(1, "a"), 1, At(1)));
  EXPECT_TRUE(list.AddMisses(Key(1, "b"), 1, At(1)));
  EXPECT_FALSE(list.AddMisses(Key(1, "c"), 1, At(1)));
  EXPECT_EQ(list.CountOf("a"), 1U);
  EXPECT_EQ(list.CountOf("c"), 0U);
  EXPECT_TRUE(list.AddMisses(Key(2, "b"), 1, At(1)));
  list.Erase(Key(1, "a"));
  EXPECT_TRUE(list.AddMisses(Key(1, "c"), 1, At(1)));
}

TEST(MissedProblems, CountsStopAtTheEndOfTheirRange) {
  MissedProblems list;
  list.AddMisses(Key(1), std::numeric_limits<int64_t>::max() - 1, At(1));
  list.AddMisses(Key(1), 100, At(1));
  EXPECT_EQ(list.MostWanted()[0].misses, std::numeric_limits<int64_t>::max());
}

TEST(MissedProblems, WhatNobodyAskedForForLongIsForgotten) {
  MissedProblems list;
  list.AddMisses(Key(1), 1, At(0));
  list.AddMisses(Key(2), 1, At(0) + MissedProblems::kForgetAfter);
  list.Forget(At(1) + MissedProblems::kForgetAfter);
  EXPECT_THAT(Names(list), ElementsAre("problem 2"));
}

TEST(MissedProblems, ChangesAreTakenOnceAndComeBackIfTheyWereNotKept) {
  MissedProblems list;
  list.AddMisses(Key(1), 1, At(1));
  list.AddMisses(Key(2), 1, At(1));
  list.Erase(Key(2));
  const MissedProblems::Changes changes = list.TakeChanges();
  ASSERT_EQ(changes.put.size(), 1U);
  EXPECT_THAT(changes.drop, ElementsAre(Key(2)));
  EXPECT_TRUE(list.TakeChanges().empty());
  list.GiveBack(changes);
  EXPECT_EQ(list.TakeChanges().put, changes.put);
}

TEST(MissedProblems, WhatWasLoadedIsNoChange) {
  MissedProblems list;
  WantedProblem wanted;
  wanted.key = Key(1);
  wanted.misses = 7;
  list.Load({wanted});
  EXPECT_TRUE(list.TakeChanges().empty());
  list.AddFailure(Key(1), "no candidate ran");
  EXPECT_EQ(list.TakeChanges().put[0].attempts, 1);
  EXPECT_EQ(list.MostWanted()[0].last_error, "no candidate ran");
}

}  // namespace
}  // namespace convtune::release

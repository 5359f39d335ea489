// The library against a daemon that answers from a script.
#include <convtune/resolver.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <mutex>
#include <thread>

#include "tests/unit/cli/fake_daemon.h"

namespace convtune::client {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kLimit(60);

class ResolverDaemonTest : public ::testing::Test {
 protected:
  Options There() const {
    Options options;
    options.address = daemon_.address();
    options.use_snapshot = false;
    return options;
  }

  cli::FakeDaemon daemon_;
};

TEST_F(ResolverDaemonTest, MoreProblemsThanARequestHoldsAreSeveralRequests) {
  std::vector<Query> queries(10'001, {cli::ProblemText(8)});
  queries.back().problem = cli::ProblemText(16);
  const auto results = Resolver(There()).Resolve(queries, kLimit);
  ASSERT_EQ(results.size(), queries.size());
  for (const Result& result : results) ASSERT_TRUE(result.found) << result.why;
  EXPECT_EQ(results.back().problem, cli::ProblemText(16));
  EXPECT_EQ(daemon_.batch_gets(), 2);
  EXPECT_EQ(daemon_.last_get().problems_size(), 1);
}

TEST_F(ResolverDaemonTest, MoreBytesThanARequestHoldsAreSeveralRequests) {
  const std::vector<Query> queries(50, {std::string(100'000, 'x')});
  const auto results = Resolver(There()).Resolve(queries, kLimit);
  EXPECT_EQ(results.size(), queries.size());
  EXPECT_EQ(daemon_.batch_gets(), 2);
}

TEST_F(ResolverDaemonTest, WhatIsRefusedSaysWhyAndTheOthersAreAnswered) {
  daemon_.refused = "bad";
  const auto results = Resolver(There()).Resolve(
      {{cli::ProblemText(8)}, {"bad one"}, {cli::ProblemText(16)}, {"bad two"}}, kLimit);
  ASSERT_EQ(results.size(), 4U);
  EXPECT_TRUE(results[0].found && results[2].found);
  EXPECT_EQ(results[2].problem, cli::ProblemText(16));
  EXPECT_EQ(results[1].why, "problems[1].text: must be one that is served");
  EXPECT_EQ(results[3].why, "problems[3].text: must be one that is served");
  EXPECT_EQ(daemon_.batch_gets(), 2);
}

TEST_F(ResolverDaemonTest, WhereAllAreRefusedNobodyIsAskedAgain) {
  daemon_.refused = "bad";
  EXPECT_FALSE(Resolver(There()).Resolve({{"bad"}}, kLimit).at(0).found);
  EXPECT_EQ(daemon_.batch_gets(), 1);
}

TEST_F(ResolverDaemonTest, ConstraintsReachTheDaemon) {
  Constraints constraints;
  constraints.max_error = 0.25;
  constraints.cache_state = CacheState::kCold;
  Resolver resolver(There());
  resolver.Resolve({{cli::ProblemText(8)}}, kLimit, constraints);
  EXPECT_EQ(daemon_.last_get().constraints().max_error(), 0.25);
  EXPECT_EQ(daemon_.last_get().constraints().cache_state(), v1::CACHE_STATE_COLD);
  resolver.Resolve({{cli::ProblemText(8)}}, kLimit);
  EXPECT_FALSE(daemon_.last_get().constraints().has_max_error());
  EXPECT_EQ(daemon_.last_get().constraints().cache_state(), v1::CACHE_STATE_UNSPECIFIED);
}

TEST_F(ResolverDaemonTest, ARefreshReportsWhatChangedAndThatAlone) {
  auto first = std::make_unique<cli::FakeDaemon>();
  cli::FakeDaemon second;
  second.misses["x16x"] = v1::MISS_REASON_NOT_FOUND;
  const std::string link = daemon_.folder() + "/link";
  const auto point_at = [&link](const cli::FakeDaemon& daemon) {
    std::filesystem::create_symlink(daemon.address().substr(5), link + ".new");
    std::filesystem::rename(link + ".new", link);
  };
  point_at(*first);
  Options options = There();
  options.address = "unix:" + link;
  std::mutex mutex;
  std::vector<std::vector<Result>> reports;
  const auto count = [&] {
    const std::lock_guard lock(mutex);
    return reports.size();
  };
  Resolver resolver(options);
  ASSERT_TRUE(resolver.StartRefresh({{cli::ProblemText(8)}, {cli::ProblemText(16)}}, {},
                                    milliseconds(1), kLimit,
                                    [&](const std::vector<Result>& changed) {
                                      const std::lock_guard lock(mutex);
                                      reports.push_back(changed);
                                    }));
  while (count() < 1) std::this_thread::sleep_for(milliseconds(1));
  const int asked = first->batch_gets();
  while (first->batch_gets() < asked + 3) std::this_thread::sleep_for(milliseconds(1));
  EXPECT_EQ(count(), 1U);  // nothing changed meanwhile
  point_at(second);
  first.reset();
  while (count() < 2) std::this_thread::sleep_for(milliseconds(1));
  resolver.StopRefresh();
  ASSERT_EQ(reports.size(), 2U);
  EXPECT_EQ(reports[0].size(), 2U);
  ASSERT_EQ(reports[1].size(), 1U);
  EXPECT_EQ(reports[1][0].problem, cli::ProblemText(16));
  EXPECT_FALSE(reports[1][0].found);
}

}  // namespace
}  // namespace convtune::client

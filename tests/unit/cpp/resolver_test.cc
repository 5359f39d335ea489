// The library where there is no daemon; resolver_daemon_test.cc has one.
#include <convtune/resolver.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdlib.h>

#include <atomic>
#include <limits>
#include <thread>

namespace convtune::client {
namespace {

using std::chrono::milliseconds;

Options NobodyThere() {
  Options options;
  options.address = "unix:/nonexistent/convtune.sock";
  options.use_snapshot = false;
  return options;
}

TEST(ResolverTest, WithoutADaemonEveryQueryHasAReason) {
  Resolver resolver(NobodyThere());
  const auto results = resolver.Resolve({{"first"}, {"second"}}, milliseconds(50));
  ASSERT_EQ(results.size(), 2U);
  EXPECT_EQ(results[1].problem, "second");
  for (const Result& result : results) {
    EXPECT_FALSE(result.found);
    EXPECT_EQ(result.source, Source::kNone);
    EXPECT_FALSE(result.message.empty());
  }
}

TEST(ResolverTest, NoTimeAtAllIsNoTimeAtAll) {
  Resolver resolver(NobodyThere());
  for (const int limit : {0, -5}) {
    const auto results = resolver.Resolve({{"x"}}, milliseconds(limit));
    ASSERT_EQ(results.size(), 1U);
    EXPECT_FALSE(results[0].message.empty());
  }
}

TEST(ResolverTest, NothingAskedIsNothingAnswered) {
  Resolver resolver;
  EXPECT_TRUE(resolver.Resolve({}, milliseconds(10)).empty());
}

TEST(ResolverTest, WrongOptionsAreAReasonAndNoException) {
  for (const char* address : {"nonsense", "unix:", "localhost:1"}) {
    Options options;
    options.address = address;
    Resolver resolver(options);
    const auto results = resolver.Resolve({{"x"}}, milliseconds(60000));
    ASSERT_EQ(results.size(), 1U);
    EXPECT_THAT(results[0].message, testing::HasSubstr(":"));
  }
}

TEST(ResolverTest, AConstraintThatBreaksItsRuleIsNamed) {
  Resolver resolver(NobodyThere());
  const auto why = [&resolver](const Constraints& constraints) {
    return resolver.Resolve({{"x"}}, milliseconds(1), constraints).at(0).message;
  };
  Constraints constraints;
  for (const double error :
       {-0.5, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    constraints.max_error = error;
    EXPECT_EQ(why(constraints), "constraints.max_error: must be a finite number of at least 0");
  }
  constraints = {};
  constraints.max_workspace_bytes = -1;
  EXPECT_EQ(why(constraints),
            "constraints.max_workspace_bytes: must be 0 to 9223372036854775807, is -1");
  constraints = {};
  constraints.cache_state = static_cast<CacheState>(7);
  EXPECT_EQ(why(constraints),
            "constraints.cache_state: must be a number of convtune.v1.CacheState, is 7");
}

TEST(ResolverTest, AProgramThatBreaksItsRuleIsNamed) {
  Options options = NobodyThere();
  options.program.cudnn_version = "9.19";
  options.program.library_configuration = "half";
  const auto results = Resolver(options).Resolve({{"x"}}, milliseconds(1));
  EXPECT_EQ(results.at(0).miss, MissReason::kRefused);
  EXPECT_EQ(results.at(0).message,
            "program.library_configuration: must be full, graph_jit_only or unknown; "
            "program.cudnn_version: must be 3 numbers separated by '.', is \"9.19\"");
}

TEST(ResolverTest, WhereNobodySaidWhereTheDaemonIsTheReasonNamesWhereItWasLookedFor) {
  unsetenv("CONVTUNE_ADDRESS");
  Options options;
  options.use_snapshot = false;
  Resolver resolver(options);
  // Without time nobody is asked, so a daemon on the default socket is not either.
  const std::string why = resolver.Resolve({{"x"}}, milliseconds(0)).at(0).message;
  EXPECT_THAT(why, testing::HasSubstr("looked for "));
  EXPECT_THAT(why, testing::HasSubstr("/run/convtune/convtune.sock"));
}

TEST(ResolverTest, ARefreshThatFindsNothingChangesNothingAndStops) {
  Resolver resolver(NobodyThere());
  std::atomic<int> calls = 0;
  const auto count = [&calls](const std::vector<Result>&) { ++calls; };
  ASSERT_TRUE(resolver.StartRefresh({{"x"}}, {}, milliseconds(1), milliseconds(1), count));
  // Replaces the first one.
  ASSERT_TRUE(resolver.StartRefresh({{"x"}}, {}, milliseconds(1), milliseconds(1), count));
  std::this_thread::sleep_for(milliseconds(50));
  resolver.StopRefresh();
  resolver.StopRefresh();
  EXPECT_EQ(calls, 0);
}

TEST(ResolverTest, ItsVersionIsTheHeaders) {
  const std::string header = std::to_string(CONVTUNE_CLIENT_VERSION_MAJOR) + "." +
                             std::to_string(CONVTUNE_CLIENT_VERSION_MINOR) + "." +
                             std::to_string(CONVTUNE_CLIENT_VERSION_PATCH);
  EXPECT_EQ(header, Version());
}

}  // namespace
}  // namespace convtune::client

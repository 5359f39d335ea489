// The library where there is no daemon; with one, tests/integration has it.
#include <convtune/resolver.h>
#include <gtest/gtest.h>

#include <atomic>
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
    EXPECT_FALSE(result.why.empty());
  }
}

TEST(ResolverTest, NoTimeAtAllIsNoTimeAtAll) {
  Resolver resolver(NobodyThere());
  for (const int limit : {0, -5}) {
    const auto results = resolver.Resolve({{"x"}}, milliseconds(limit));
    ASSERT_EQ(results.size(), 1U);
    EXPECT_FALSE(results[0].why.empty());
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
    const auto results = resolver.Resolve({{"x"}}, milliseconds(50));
    ASSERT_EQ(results.size(), 1U);
    EXPECT_NE(results[0].why.find(":"), std::string::npos) << results[0].why;
  }
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

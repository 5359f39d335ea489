// The library against a daemon that answers from a script.
#include <convtune/resolver.h>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <stdlib.h>

#include <filesystem>
#include <memory>
#include <mutex>
#include <new>
#include <thread>

#include "client/cpp/client.h"
#include "tests/unit/cli/fake_daemon.h"
#include "tests/unit/cpp/published.h"
#include "tests/unit/unix_socket.h"

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
  for (const Result& result : results) ASSERT_TRUE(result.found) << result.message;
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

TEST_F(ResolverDaemonTest, WhatAReplyHasNoRoomForIsAskedForAgain) {
  daemon_.most_results = 2;
  std::vector<Query> queries;
  for (const int channels : {8, 16, 24, 32, 40}) queries.push_back({cli::ProblemText(channels)});
  const auto results = Resolver(There()).Resolve(queries, kLimit);
  ASSERT_EQ(results.size(), queries.size());
  for (size_t i = 0; i < results.size(); ++i) {
    EXPECT_TRUE(results[i].found) << results[i].message;
    EXPECT_EQ(results[i].problem, queries[i].problem);
  }
  EXPECT_EQ(daemon_.batch_gets(), 3);
}

TEST_F(ResolverDaemonTest, ADaemonThatAnswersNothingIsAnError) {
  daemon_.most_results = 0;
  const Result result = Resolver(There()).Resolve({{cli::ProblemText(8)}}, kLimit).at(0);
  EXPECT_FALSE(result.found);
  EXPECT_EQ(result.message, "the daemon answered 0 of 1 problems");
}

TEST_F(ResolverDaemonTest, WhatIsRefusedSaysWhyAndTheOthersAreAnswered) {
  daemon_.refused = "bad";
  const auto results = Resolver(There()).Resolve(
      {{cli::ProblemText(8)}, {"bad one"}, {cli::ProblemText(16)}, {"bad two"}}, kLimit);
  ASSERT_EQ(results.size(), 4U);
  EXPECT_TRUE(results[0].found && results[2].found);
  EXPECT_EQ(results[2].problem, cli::ProblemText(16));
  EXPECT_EQ(results[1].message, "problems[1].text: must be one that is served");
  EXPECT_EQ(results[3].message, "problems[3].text: must be one that is served");
  EXPECT_EQ(daemon_.batch_gets(), 2);
}

TEST_F(ResolverDaemonTest, ACallerWhoMayNotAskIsRefused) {
  daemon_.error = {grpc::StatusCode::PERMISSION_DENIED, "the role read is needed"};
  const Result result = Resolver(There()).Resolve({{cli::ProblemText(8)}}, kLimit).at(0);
  EXPECT_FALSE(result.found);
  EXPECT_EQ(result.miss, MissReason::kRefused);
  EXPECT_EQ(result.message, "the role read is needed");
  EXPECT_EQ(daemon_.batch_gets(), 1);
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

TEST_F(ResolverDaemonTest, ADaemonThatDoesNotKnowAFieldIsNoticed) {
  Constraints constraints;
  constraints.max_age = std::chrono::hours(24);
  Resolver resolver(There());
  const Result old = resolver.Resolve({{cli::ProblemText(8)}}, kLimit, constraints).at(0);
  EXPECT_EQ(daemon_.last_get().max_age().seconds(), 24 * 3600);
  EXPECT_FALSE(old.found);
  EXPECT_EQ(old.miss, MissReason::kRefused);
  EXPECT_EQ(old.message, "max_age: the daemon is too old to know it");
  daemon_.lists_fields = true;
  EXPECT_TRUE(resolver.Resolve({{cli::ProblemText(8)}}, kLimit, constraints).at(0).found);
}

TEST_F(ResolverDaemonTest, TheProgramReachesTheDaemonAndTheEnvironmentTheCaller) {
  Options options = There();
  options.program.gpu_model = "NVIDIA H200";
  options.program.sm_count = 132;
  options.program.cudnn_version = "9.12.0";
  options.program.library_configuration = "full";
  auto result = Resolver(options).Resolve({{cli::ProblemText(8)}}, kLimit).at(0);
  EXPECT_EQ(result.environment.name, "nvidia-h200");
  const v1::Environment program = daemon_.last_get().program();
  EXPECT_EQ(program.gpu_model(), "NVIDIA H200");
  EXPECT_EQ(program.sm_count(), 132);
  EXPECT_EQ(program.cudnn_version(), "9.12.0");
  EXPECT_EQ(program.library_configuration(), v1::LIBRARY_CONFIGURATION_FULL);
  daemon_.misses["x8x"] = v1::MISS_REASON_OTHER_ENVIRONMENT;
  result = Resolver(options).Resolve({{cli::ProblemText(8)}}, kLimit).at(0);
  EXPECT_FALSE(result.found);
  EXPECT_EQ(result.miss, MissReason::kOtherEnvironment);
  EXPECT_EQ(result.environment.name, "nvidia-h200");
}

TEST_F(ResolverDaemonTest, MissesAreEnqueuedForWhoAsksForIt) {
  daemon_.misses["x16x"] = v1::MISS_REASON_NOT_FOUND;
  Options options = There();
  EXPECT_EQ(Resolver(options).Resolve({{cli::ProblemText(16)}}, kLimit).at(0).job, "");
  EXPECT_EQ(daemon_.last_get().on_miss(), v1::ON_MISS_UNSPECIFIED);
  options.enqueue_misses = true;
  const auto results =
      Resolver(options).Resolve({{cli::ProblemText(16)}, {cli::ProblemText(8)}}, kLimit);
  EXPECT_EQ(daemon_.last_get().on_miss(), v1::ON_MISS_ENQUEUE);
  EXPECT_EQ(results.at(0).miss, MissReason::kNotFound);
  EXPECT_EQ(results.at(0).job, "jobs/1");
  EXPECT_EQ(results.at(1).job, "");
}

// A daemon that accepts the connection and says nothing, as one that is stopped.
UniqueFd SilentDaemon(const std::string& path) {
  UniqueFd listener = BindSocket(path);
  EXPECT_EQ(listen(listener.get(), 8), 0);
  return listener;
}

TEST_F(ResolverDaemonTest, OfASilentDaemonTheSnapshotAnswersAfterHalfOfTheTime) {
  const std::string folder = daemon_.folder() + "/snapshot";
  std::filesystem::create_directory(folder);
  Publish(folder, {"a"}, ThreeChoices(cli::ProblemText(8)));
  const UniqueFd silent = SilentDaemon(daemon_.folder() + "/silent");
  Options options;
  options.address = "unix:" + daemon_.folder() + "/silent";
  options.snapshot = folder;
  Resolver resolver(options);
  const auto start = std::chrono::steady_clock::now();
  auto result = resolver.Resolve({{cli::ProblemText(8)}}, seconds(2)).at(0);
  const auto took = std::chrono::steady_clock::now() - start;
  EXPECT_TRUE(result.found) << result.message;
  EXPECT_EQ(result.source, Source::kSnapshot);
  EXPECT_GE(took, seconds(1));
  EXPECT_LT(took, seconds(2));
  // Of what the snapshot does not have nothing is known before the end.
  const auto results =
      resolver.Resolve({{cli::ProblemText(8)}, {cli::ProblemText(16)}}, milliseconds(400));
  EXPECT_TRUE(results.at(0).found);
  EXPECT_FALSE(results.at(1).found);
  EXPECT_GE(std::chrono::steady_clock::now() - start, took + milliseconds(400));
}

TEST_F(ResolverDaemonTest, NothingOfACallIsLeftWhereTheSnapshotThrows) {
  const UniqueFd silent = SilentDaemon(daemon_.folder() + "/silent");
  convtune::client::Client::Options options;
  options.address = Address::Parse("unix:" + daemon_.folder() + "/silent").value();
  const auto client = convtune::client::Client::Create(options).value();
  const auto call = [&client] {
    EXPECT_THROW(
        client
            ->BatchGet({}, absl::Seconds(60),
                       convtune::client::Client::Doubt{absl::Milliseconds(1),
                                                       []() -> bool { throw std::bad_alloc(); }})
            .IgnoreError(),
        std::bad_alloc);
  };
  for (int i = 0; i < 20; ++i) call();
  const size_t before = mallinfo2().uordblks;
  for (int i = 0; i < 200; ++i) call();
  const size_t after = mallinfo2().uordblks;
  EXPECT_LT(after, before + 200 * 100);
}

TEST_F(ResolverDaemonTest, ARefreshIsForTheGpuOfItsCallersContext) {
  setenv("FAKE_GPUS", "hl", 1);
  void* const driver = dlopen(CONVTUNE_FAKE_DRIVER, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(driver, nullptr) << dlerror();
  const auto set_context = reinterpret_cast<void (*)(int)>(dlsym(driver, "FakeSetContext"));
  ASSERT_NE(set_context, nullptr);
  set_context(1);
  Resolver resolver(There());
  ASSERT_TRUE(resolver.StartRefresh({{cli::ProblemText(8)}}, {}, milliseconds(1), kLimit,
                                    [](const std::vector<Result>&) {}));
  while (daemon_.batch_gets() < 2) std::this_thread::sleep_for(milliseconds(1));
  resolver.StopRefresh();
  EXPECT_EQ(daemon_.last_get().program().gpu_model(), "NVIDIA L4");
  set_context(-1);
  dlclose(driver);
  unsetenv("FAKE_GPUS");
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

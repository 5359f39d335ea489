#include "server/lookup/index_loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <thread>
#include <utility>

#include "proto/base/mutex.h"
#include "proto/base/status_macros.h"
#include "tests/fakes/memory_store.h"
#include "tests/unit/candidates.h"

namespace convtune::lookup {
namespace {

constexpr absl::Duration kLong = absl::Minutes(1);

std::string Text(int n, int alignment = 16) {
  const std::string text = "fwd,x=1x8x9x" + std::to_string(n) + ",w=8x8x1x1";
  return ConvProblem::Parse(alignment == 16 ? text : text + ",align=" + std::to_string(alignment))
      .value()
      .ToText();
}

Tuning MakeTuning(const std::string& problem_text, double median_us) {
  Tuning tuning = TuningOf({Timed(0, median_us)});
  tuning.key = {problem_text, kH200};
  return tuning;
}

// Gives the tuning that ForEachStored begins with, and the rest only when it is
// told to.
class SlowStore : public MemoryStore {
 public:
  absl::Status ForEachStored(const std::function<bool(db::StoredTuning)>& visit,
                             const std::function<void(const std::string&)>& corrupt) override {
    bool more = true;
    bool first = true;
    RETURN_IF_ERROR(MemoryStore::ForEachStored(
        [&](db::StoredTuning tuning) {
          if (!first) AwaitGo();
          first = false;
          if (tuning.key.problem_text == undecodable) {
            tuning.decode = [] { return absl::DataLossError("its record means nothing"); };
          }
          more = visit(std::move(tuning));
          return more;
        },
        corrupt));
    return more ? failure : absl::OkStatus();
  }
  void Go() {
    MutexLock lock(mutex_);
    go_ = true;
    changed_.SignalAll();
  }

  absl::Status failure;     // of reading all, at its end
  std::string undecodable;  // a problem whose record cannot be read

 private:
  void AwaitGo() {
    MutexLock lock(mutex_);
    while (!go_) changed_.Wait(mutex_);
  }

  Mutex mutex_;
  CondVar changed_;
  bool go_ GUARDED_BY(mutex_) = false;
};

class IndexLoaderTest : public testing::Test {
 protected:
  IndexLoaderTest() {
    for (int n = 1; n <= 4; ++n) Put(MakeTuning(Text(n), 10 * n));
  }
  ~IndexLoaderTest() override { store_.Go(); }

  void Put(const Tuning& tuning) {
    const auto environment = Environment::Parse(kH200);
    EXPECT_TRUE(environment.ok() && store_.PutTuning(tuning, *environment).ok());
  }
  // While one of four is loaded.
  void StartSlowly() { EXPECT_TRUE(loader_.Start(absl::ZeroDuration()).ok()); }
  double TimeOf(const std::string& text) const {
    const IndexHit hit = index_.Find({text, kH200});
    return hit.tuning == nullptr ? 0 : hit.tuning->tuning.candidates.at(0).median_us;
  }
  size_t Listed() const { return index_.List("", 100, {}, "").tunings.size(); }

  SlowStore store_;
  TuningIndex index_;
  IndexLoader loader_{&store_, &index_};
};

TEST_F(IndexLoaderTest, ReadsAllWithinItsTimeout) {
  store_.Go();
  ASSERT_TRUE(loader_.Start(kLong).ok());
  EXPECT_EQ(Listed(), 4U);
  EXPECT_TRUE(loader_.Await(absl::ZeroDuration()).ok());
}

TEST_F(IndexLoaderTest, ARecordThatCannotBeReadIsLeftOut) {
  store_.undecodable = Text(3);
  store_.Go();
  ASSERT_TRUE(loader_.Start(kLong).ok());
  EXPECT_EQ(Listed(), 3U);
  EXPECT_EQ(TimeOf(Text(3)), 0);
}

TEST_F(IndexLoaderTest, ManyArePutInBesideLookUps) {
  constexpr int kMany = 1000;
  for (int n = 5; n <= kMany; ++n) Put(MakeTuning(Text(n), 10 * n));
  StartSlowly();
  std::thread asks([this] {
    for (int n = kMany; n > 0; --n) EXPECT_EQ(TimeOf(Text(n)), 10 * n);
  });
  store_.Go();
  ASSERT_TRUE(loader_.Await(kLong).ok());
  asks.join();
  EXPECT_EQ(index_.Counts().at(kH200), kMany);
  EXPECT_EQ(index_.List("", 2 * kMany, {}, "").tunings.size(), size_t{kMany});
  for (int n = 1; n <= kMany; ++n) EXPECT_EQ(TimeOf(Text(n)), 10 * n);
}

TEST_F(IndexLoaderTest, WhatIsNotThereYetIsReadForWhoAsks) {
  StartSlowly();
  EXPECT_TRUE(absl::IsUnavailable(loader_.Await(absl::ZeroDuration())));
  EXPECT_EQ(TimeOf(Text(4)), 40);
  EXPECT_EQ(TimeOf(Text(5)), 0);
  EXPECT_LT(Listed(), 4U);
  // It is the same object from then on, so that ready answers hold.
  const auto read = index_.Find({Text(4), kH200}).tuning;
  store_.Go();
  EXPECT_TRUE(loader_.Await(kLong).ok());
  EXPECT_EQ(index_.Find({Text(4), kH200}).tuning, read);
  EXPECT_EQ(Listed(), 4U);
}

TEST_F(IndexLoaderTest, OneForLessStrictAlignmentServesMeanwhile) {
  Put(MakeTuning(Text(9, 4), 90));
  StartSlowly();
  const auto problem = ConvProblem::Parse(Text(9)).value();
  const IndexHit hit = index_.FindServing(problem, {Text(9), kH200});
  ASSERT_NE(hit.tuning, nullptr);
  EXPECT_EQ(hit.tuning->tuning.key.problem_text, Text(9, 4));
}

TEST_F(IndexLoaderTest, WhatChangedMeanwhileIsNotUndone) {
  StartSlowly();
  index_.Put(MakeTuning(Text(3), 1), true);
  EXPECT_EQ(TimeOf(Text(4)), 40);
  EXPECT_TRUE(store_.DeleteTunings({{Text(4), kH200}}).ok());
  EXPECT_TRUE(index_.Erase({Text(4), kH200}));
  EXPECT_EQ(TimeOf(Text(4)), 0);
  store_.Go();
  ASSERT_TRUE(loader_.Await(kLong).ok());
  EXPECT_EQ(TimeOf(Text(3)), 1);
  EXPECT_EQ(TimeOf(Text(4)), 0);
  EXPECT_EQ(Listed(), 3U);
}

TEST_F(IndexLoaderTest, AnErrorWithinTheTimeoutFailsTheStart) {
  store_.Go();
  store_.failure = absl::DataLossError("the disk is gone");
  EXPECT_TRUE(absl::IsDataLoss(loader_.Start(kLong)));
}

TEST_F(IndexLoaderTest, AfterAnErrorWhoAsksIsAnsweredFromTheStore) {
  store_.failure = absl::DataLossError("the disk is gone");
  StartSlowly();
  store_.Go();
  EXPECT_TRUE(absl::IsDataLoss(loader_.Await(kLong)));
  Put(MakeTuning(Text(7), 70));
  EXPECT_EQ(TimeOf(Text(7)), 70);
}

TEST_F(IndexLoaderTest, StoppingDoesNotReadTheRest) {
  StartSlowly();
  std::thread stops([this] { loader_.Stop(); });
  // Stop waits for the row that is being read.
  EXPECT_TRUE(absl::IsUnavailable(loader_.Await(kLong)));
  store_.Go();
  stops.join();
  EXPECT_LT(Listed(), 4U);
  EXPECT_TRUE(absl::IsUnavailable(loader_.Await(absl::ZeroDuration())));
}

}  // namespace
}  // namespace convtune::lookup

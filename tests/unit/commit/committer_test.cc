// Many threads that commit at a time.
#include "server/commit/committer.h"

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/fakes/memory_store.h"
#include "tests/unit/candidates.h"

namespace convtune::commit {
namespace {

constexpr int kThreads = 16;
constexpr int kEach = 40;

// Refuses one problem for good.
class ChoosyStore : public MemoryStore {
 public:
  absl::Status PutTuning(const Tuning& tuning, const Environment& environment) override {
    if (tuning.key == refused) return absl::InvalidArgumentError("not this one");
    return MemoryStore::PutTuning(tuning, environment);
  }
  TuningKey refused;
};

QuarantineEntry Crash(const Tuning& tuning, size_t candidate) {
  return {tuning.key,
          tuning.candidates[candidate].id,
          QuarantineReason::kCrashed,
          "segfault",
          absl::Now(),
          {}};
}

Tuning TuningFor(int n) {
  Tuning tuning = TuningOf({Timed(n, 10)});
  tuning.key = KeyOf("fwd,x=" + std::to_string(n + 1) + "x8x8x8,w=8x8x3x3,pad=1,f16");
  return tuning;
}

class CommitterTest : public ::testing::Test {
 protected:
  template <typename Work>
  static void InThreads(const Work& work) {
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) threads.emplace_back([&work, t] { work(t); });
    for (std::thread& thread : threads) thread.join();
  }
  bool IsStored(const TuningKey& key) { return store_.GetTuning(key).ok(); }

  ChoosyStore store_;
  lookup::TuningIndex index_;
  SystemClock clock_;
  Committer committer_{&store_, &index_, &clock_};
  const Environment environment_ = Environment::Parse(kH200).value();
};

TEST_F(CommitterTest, WhatIsAcknowledgedIsStoredAndServed) {
  InThreads([this](int t) {
    for (int i = 0; i < kEach; ++i) {
      const Tuning tuning = TuningFor(t * kEach + i);
      EXPECT_TRUE(committer_.Commit(tuning, environment_, false));
      EXPECT_TRUE(IsStored(tuning.key));
      EXPECT_NE(index_.Find(tuning.key).tuning, nullptr);
    }
  });
  EXPECT_EQ(index_.Counts().at(kH200), kThreads * kEach);
  EXPECT_TRUE(committer_.writable());
}

TEST_F(CommitterTest, WhatAnotherDeviceQuarantinedMeanwhileIsNotServed) {
  Tuning tuning = TuningOf({Timed(0, 10), Timed(1, 5)});
  committer_.Quarantine(Crash(tuning, 0));
  EXPECT_TRUE(committer_.Commit(tuning, environment_, false));
  const auto stored = store_.GetTuning(tuning.key);
  EXPECT_EQ(stored->candidates[0].id, CandidateId(EngineConfig{0, {}}));
  EXPECT_EQ(stored->candidates[1].status, CandidateStatus::kQuarantined);
  EXPECT_EQ(index_.Find(tuning.key).tuning->Winner(), "graph:eng0");
}

TEST_F(CommitterTest, AQuarantinedCandidateHasNoTimes) {
  Tuning tuning = TuningOf({Timed(0, 10), Launched(Timed(1, 5), 2)});
  for (Candidate& candidate : tuning.candidates) {
    candidate.samples_ns = {5000, 5000, 5000};
    candidate.sm_clock_mhz = 1755;
    candidate.other_times = {{LaunchMode::kEager, CacheState::kHot, 4, 3, 5, 10}};
  }
  Candidate expected = tuning.candidates[0];
  const QuarantineEntry entry = Crash(tuning, 0);
  expected.status = CandidateStatus::kQuarantined;
  expected.error_message = entry.message;
  expected.samples_ns.clear();
  expected.other_times.clear();
  expected.median_us = expected.q1_us = expected.q3_us = 0;
  expected.low_us = expected.high_us = expected.host_us = expected.sm_clock_mhz = 0;
  expected.sample_count = 0;
  EXPECT_TRUE(committer_.Commit(tuning, environment_, false));
  committer_.Quarantine(entry);  // of one that is stored
  EXPECT_EQ(store_.GetTuning(tuning.key)->candidates[1], expected);
  EXPECT_TRUE(committer_.Commit(tuning, environment_, /*forced=*/true));  // of one that comes
  EXPECT_EQ(store_.GetTuning(tuning.key)->candidates[1], expected);
}

TEST_F(CommitterTest, AContendedPartNeverTakesTheCleanWholesPlace) {
  Candidate legacy = Timed(7, 5);
  legacy.id = LegacyAlgorithm{1, 2};
  Tuning whole = TuningOf({legacy, Timed(1, 9)}, {.race_cut = true});
  whole.conditions.known = true;
  EXPECT_TRUE(committer_.Commit(whole, environment_, false));
  Tuning part = TuningOf({Sampled(Timed(1, 6), 1)}, {.one_api = true});
  part.conditions.known = true;
  part.conditions.other_processes = 1;
  committer_.Commit(part, environment_, /*forced=*/true);
  EXPECT_EQ(store_.GetTuning(whole.key)->candidates, whole.candidates);
}

TEST_F(CommitterTest, OneThatIsRefusedKeepsNoOtherFromTheDisk) {
  store_.refused = TuningFor(kEach).key;
  InThreads([this](int t) {
    for (int i = 0; i < kEach; ++i) {
      const Tuning tuning = TuningFor(t * kEach + i);
      const bool refused = tuning.key == store_.refused;
      EXPECT_EQ(committer_.Commit(tuning, environment_, false), !refused);
      EXPECT_EQ(IsStored(tuning.key), !refused);
      EXPECT_NE(index_.Find(tuning.key).tuning, nullptr);
    }
  });
}

TEST_F(CommitterTest, OfTheSameProblemsTuningsTheBestStays) {
  InThreads([this](int t) {
    for (int i = 0; i < kEach; ++i) {
      // Only one of all is timed; whatever comes behind it is worse.
      Tuning tuning = TuningOf({t == 7 && i == 20 ? Timed(1, 10) : Finalized(2)});
      committer_.Commit(std::move(tuning), environment_, false);
    }
  });
  EXPECT_EQ(index_.Find(KeyOf(kProblem)).tuning->Winner(), "graph:eng1");
  EXPECT_EQ(store_.GetTuning(KeyOf(kProblem))->evidence, Evidence::kMeasured);
}

TEST_F(CommitterTest, WhatTheDiskRefusedIsWrittenLater) {
  store_.FailWith(absl::UnavailableError("full"));
  EXPECT_FALSE(committer_.Commit(TuningFor(1), environment_, false));
  EXPECT_FALSE(committer_.writable());
  store_.FailWith(absl::OkStatus());
  EXPECT_TRUE(committer_.Commit(TuningFor(2), environment_, false));
  EXPECT_TRUE(IsStored(TuningFor(1).key));
  EXPECT_TRUE(committer_.writable());
}

// What was measured with another NVRTC than there is now.
class OutdatedTest : public ::testing::Test {
 protected:
  void SetUp() override {
    measured_ = TuningOf({UsesNvrtc(Timed(0, 10)), UsesNvrtc(Timed(1, 20))});
    measured_.provenance.nvrtc_build = "old";
    ASSERT_TRUE(store_.PutTuning(measured_, environment_).ok());
    index_.Put(measured_, /*persisted=*/true);
    guess_ = TuningOf({Finalized(1), Finalized(2)}, {.first_configs_only = true});
  }

  static Candidate UsesNvrtc(Candidate candidate) {
    candidate.behavior_notes = NoteBit(BehaviorNote::kRuntimeCompilation);
    return candidate;
  }
  std::shared_ptr<const lookup::IndexedTuning> Served() {
    return index_.Find(measured_.key).tuning;
  }
  Tuning OnDisk() { return store_.GetTuning(measured_.key).value(); }

  Tuning measured_;
  Tuning guess_;
  MemoryStore store_;
  lookup::TuningIndex index_{decision::ProvenanceByEnvironment{{kH200, Builds("", "new")}}};
  SystemClock clock_;
  Committer committer_{&store_, &index_, &clock_};
  const Environment environment_ = Environment::Parse(kH200).value();
};

TEST_F(OutdatedTest, AGuessIsServedInsteadAndWhatWasMeasuredStaysOnDisk) {
  EXPECT_TRUE(committer_.Commit(guess_, environment_, /*forced=*/true));
  EXPECT_EQ(OnDisk(), measured_);
  EXPECT_EQ(Served()->tuning.evidence, Evidence::kHeuristic);
  EXPECT_FALSE(Served()->persisted);
  ASSERT_NE(Served()->stand_in, nullptr);
  EXPECT_EQ(Served()->stand_in->outdated->Winner(), "graph:eng0");
  EXPECT_TRUE(committer_.writable());
  // And a better one instead of that.
  EXPECT_TRUE(committer_.Commit(TuningOf({Finalized(1), Finalized(2), Finalized(3)}), environment_,
                                /*forced=*/false));
  EXPECT_EQ(Served()->candidate_count, 3);
  EXPECT_EQ(Served()->stand_in->outdated->Winner(), "graph:eng0");
  EXPECT_TRUE(committer_.Commit(guess_, environment_, /*forced=*/false));
  EXPECT_EQ(Served()->candidate_count, 3);
  EXPECT_EQ(OnDisk(), measured_);
}

TEST_F(OutdatedTest, WhatIsMeasuredAnewTakesItsPlace) {
  EXPECT_TRUE(committer_.Commit(guess_, environment_, /*forced=*/false));
  Tuning anew = TuningOf({Timed(2, 5), Finalized(1)});
  ASSERT_EQ(anew.evidence, Evidence::kIncomplete);
  EXPECT_TRUE(committer_.Commit(anew, environment_, /*forced=*/false));
  EXPECT_EQ(OnDisk().evidence, Evidence::kIncomplete);
  EXPECT_EQ(Served()->stand_in, nullptr);
  EXPECT_TRUE(Served()->persisted);
  EXPECT_TRUE(committer_.Commit(guess_, environment_, /*forced=*/false));
  EXPECT_EQ(OnDisk().evidence, Evidence::kIncomplete);
}

TEST_F(OutdatedTest, NeitherABundleNorTheFleetPutsAGuessInItsPlace) {
  bool given = false;
  const db::TuningSource once = [&]() -> absl::StatusOr<std::optional<db::TuningRecord>> {
    if (std::exchange(given, true)) return std::nullopt;
    return db::TuningRecord{guess_, environment_};
  };
  EXPECT_EQ(committer_.Import(once)->kept_count(), 1);
  given = false;
  guess_.origin = Origin::kFleet;
  EXPECT_EQ(committer_.ApplyFleet(once)->unchanged_count(), 1);
  EXPECT_EQ(OnDisk(), measured_);
}

TEST_F(OutdatedTest, AQuarantineNeverWritesThatItDoesNotHold) {
  committer_.Quarantine(Crash(measured_, 0));
  // It was the stock choice: that is all that is written of it.
  EXPECT_EQ(OnDisk().evidence, Evidence::kIncomplete);
  EXPECT_EQ(OnDisk().incomplete_reasons, ReasonBit(IncompleteReason::kStockFailed));
  EXPECT_EQ(OnDisk().candidates[1].status, CandidateStatus::kQuarantined);
  EXPECT_TRUE(Served()->tuning.has(IncompleteReason::kOutdated));
}

TEST_F(OutdatedTest, WhatHeldForTheOldLibraryAloneLeavesARestThatHolds) {
  measured_.candidates[1].behavior_notes = 0;
  ASSERT_TRUE(store_.PutTuning(measured_, environment_).ok());
  committer_.Quarantine(Crash(measured_, 0));
  EXPECT_FALSE(Served()->IsOutdated());
  EXPECT_EQ(Served()->tuning.evidence, OnDisk().evidence);
}

TEST_F(OutdatedTest, AQuarantinedCandidateIsNeitherServedNorHinted) {
  EXPECT_TRUE(committer_.Commit(TuningOf({Finalized(0), Finalized(1)}), environment_, false));
  committer_.Quarantine(Crash(measured_, 0));
  EXPECT_EQ(Served()->Winner(), "graph:eng1");
  EXPECT_EQ(Served()->stand_in->outdated->Winner(), "graph:eng1");
  EXPECT_EQ(OnDisk().evidence, Evidence::kIncomplete);
  EXPECT_EQ(OnDisk().candidates[1].status, CandidateStatus::kQuarantined);
}

TEST_F(OutdatedTest, AQuarantineThatTheDiskRefusedIsWrittenLaterAndTheGuessIsServedOn) {
  EXPECT_TRUE(committer_.Commit(guess_, environment_, /*forced=*/false));
  store_.FailWith(absl::UnavailableError("full"));
  committer_.Quarantine(Crash(measured_, 0));
  EXPECT_EQ(OnDisk(), measured_);
  store_.FailWith(absl::OkStatus());
  EXPECT_TRUE(committer_.Commit(TuningFor(2), environment_, false));
  EXPECT_EQ(OnDisk().evidence, Evidence::kIncomplete);
  EXPECT_EQ(OnDisk().candidates[1].status, CandidateStatus::kQuarantined);
  EXPECT_EQ(Served()->tuning.evidence, Evidence::kHeuristic);
  EXPECT_NE(Served()->stand_in, nullptr);
}

TEST_F(OutdatedTest, APinAndADeletionKnowWhatIsServed) {
  EXPECT_TRUE(committer_.Commit(guess_, environment_, /*forced=*/false));
  Pin pin;
  pin.key = measured_.key;
  pin.reason = "why";
  const std::string pinned = ToText(guess_.candidates[1].id);
  EXPECT_TRUE(committer_.PutPin(CandidatePattern::Parse(pinned).value(), &pin).ok());
  EXPECT_NE(Served()->stand_in, nullptr);
  EXPECT_EQ(committer_.Delete({measured_.key}).value(), 1);
  EXPECT_EQ(Served(), nullptr);
  EXPECT_TRUE(committer_.Commit(guess_, environment_, /*forced=*/false));
}

TEST(CommitterRetries, WriteWithoutAnotherResult) {
  ChoosyStore store;
  lookup::TuningIndex index;
  const SystemClock clock;
  Committer committer(&store, &index, &clock, absl::Milliseconds(1));
  const Environment environment = Environment::Parse(kH200).value();
  store.FailWith(absl::UnavailableError("full"));
  EXPECT_FALSE(committer.Commit(TuningFor(1), environment, false));
  store.FailWith(absl::OkStatus());
  while (!committer.writable()) std::this_thread::yield();
  EXPECT_TRUE(store.GetTuning(TuningFor(1).key).ok());
  EXPECT_TRUE(index.Find(TuningFor(1).key).tuning->persisted);
}

// Stands still until it is told. Thread-safe.
class StandingClock : public Clock {
 public:
  absl::Time Now() const override { return absl::FromUnixSeconds(seconds_); }
  void Advance(absl::Duration by) { seconds_ += absl::ToInt64Seconds(by); }

 private:
  std::atomic<int64_t> seconds_{1'800'000'000};
};

class UnreadableStore : public MemoryStore {
 public:
  absl::StatusOr<Tuning> GetTuning(const TuningKey& key) override {
    on_read();
    if (unreadable) return absl::DataLossError("samples: the checksum does not match");
    return MemoryStore::GetTuning(key);
  }
  bool unreadable = false;
  std::function<void()> on_read = [] {};
};

class BansTest : public ::testing::Test {
 protected:
  BansTest() {
    EXPECT_TRUE(committer_.Load().ok());
    committer_.SetObserver([](const TuningKey&, bool) {}, [this] { ++told_; });
  }
  void Know(int n, std::vector<Candidate> candidates) {
    Tuning tuning = TuningOf(std::move(candidates));
    tuning.key = TuningFor(n).key;
    EXPECT_TRUE(committer_.Commit(tuning, Environment::Parse(kH200).value(), false));
  }
  std::string Winner(int n) { return index_.Find(TuningFor(n).key).tuning->Winner(); }
  Ban Add(Ban ban) {
    EXPECT_TRUE(committer_.AddBan(&ban, 1).ok());
    return ban;
  }
  static Ban BanOf(const std::string& pattern) { return *BansOfPattern(pattern).all()[0]; }

  UnreadableStore store_;
  lookup::TuningIndex index_;
  StandingClock clock_;
  std::atomic<int> told_{0};
  Committer committer_{&store_, &index_, &clock_, absl::Milliseconds(1)};
};

TEST_F(BansTest, ABanChangesAnswersAndSaysWhich) {
  Know(0, {Timed(0, 30), Timed(1, 10), Timed(2, 20)});  // changes
  Know(1, {Timed(0, 30), Timed(1, 40)});                // lists it
  Know(2, {Timed(1, 10)});                              // loses all
  Know(3, {Timed(7, 10)});
  Ban ban = BanOf("eng1");
  const auto preview = committer_.AddBan(&ban, 100, /*dry_run=*/true).value();
  EXPECT_EQ(Winner(0), "graph:eng1");
  EXPECT_TRUE(store_.ListBans()->empty());
  const auto effects = committer_.AddBan(&ban, 100);
  ASSERT_TRUE(effects.ok());
  EXPECT_EQ(ban.number, 1);
  for (const v1::CreateBanResponse& e : {preview, *effects}) {
    EXPECT_EQ(e.listed_count(), 3);
    EXPECT_EQ(e.change_count(), 2);
    EXPECT_EQ(e.lost_count(), 1);
    ASSERT_EQ(e.changes_size(), 2);
    EXPECT_EQ(e.changes(0).problem_text(), TuningFor(0).key.problem_text);
    EXPECT_EQ(e.changes(0).before(), "graph:eng1");
    EXPECT_EQ(e.changes(0).after(), "graph:eng2");
    EXPECT_DOUBLE_EQ(e.changes(0).ratio(), 2);
    EXPECT_EQ(e.changes(1).after(), "");
    EXPECT_EQ(e.changes(1).ratio(), 0);
  }
  EXPECT_EQ(Winner(0), "graph:eng2");
  EXPECT_EQ(Winner(2), "");
  EXPECT_EQ(told_, 1);
  // A later tuning heeds it, too, and is stored without it.
  Know(4, {Timed(1, 10), Timed(2, 20)});
  EXPECT_EQ(Winner(4), "graph:eng2");
  EXPECT_TRUE(store_.GetTuning(TuningFor(4).key)->candidates[0].usable());
  ASSERT_TRUE(committer_.DeleteBan(1, 0).ok());
  EXPECT_EQ(Winner(0), "graph:eng1");
  EXPECT_EQ(Winner(4), "graph:eng1");
  EXPECT_EQ(told_, 2);
  EXPECT_TRUE(absl::IsNotFound(committer_.DeleteBan(1, 0)));
}

TEST_F(BansTest, AMissUnderTwoBansCountsWhatNeitherTakesAway) {
  Candidate failed = Finalized(2, 0);
  failed.status = CandidateStatus::kFailed;
  Know(0, {Timed(1, 10), failed});
  const auto unusable = [this] {
    return index_.Find(TuningFor(0).key).tuning->bans->unusable.size();
  };
  Add(BanOf("eng1"));
  EXPECT_EQ(unusable(), 1U);
  // The second ban fits only the candidate that failed. No answer changes, but the miss does
  // not count that candidate any more.
  Ban second = BanOf("eng2");
  const auto effects = committer_.AddBan(&second, 1);
  EXPECT_EQ(effects->listed_count(), 0);
  EXPECT_EQ(effects->change_count(), 0);
  EXPECT_EQ(unusable(), 0U);
  ASSERT_TRUE(committer_.DeleteBan(second.number, 0).ok());
  EXPECT_EQ(unusable(), 1U);
}

TEST_F(BansTest, OnlyTheFirstChangesAreGiven) {
  for (int n = 0; n < 5; ++n) Know(n, {Timed(0, 30), Timed(1, 10)});
  Ban ban = BanOf("eng1");
  const auto effects = committer_.AddBan(&ban, 2, /*dry_run=*/true).value();
  EXPECT_EQ(effects.changes_size(), 2);
  EXPECT_EQ(effects.change_count(), 5);
}

TEST_F(BansTest, BansAreThereAfterARestart) {
  Know(0, {Timed(0, 30), Timed(1, 10)});
  Add(BanOf("eng1"));
  lookup::TuningIndex index;
  Committer next(&store_, &index, &clock_, absl::Milliseconds(1));
  ASSERT_TRUE(next.Load().ok());
  index.Put(*store_.GetTuning(TuningFor(0).key), true);
  EXPECT_EQ(index.Find(TuningFor(0).key).tuning->Winner(), "graph:eng0");
}

TEST_F(BansTest, ABanEndsWhenItExpires) {
  Know(0, {Timed(0, 30), Timed(1, 10)});
  Ban ban = BanOf("eng1");
  ban.expire_time = clock_.Now() + absl::Hours(1);
  Add(ban);
  committer_.EndExpiredBans();
  EXPECT_EQ(Winner(0), "graph:eng0");
  clock_.Advance(absl::Hours(2));
  // By the committer's own thread.
  for (int i = 0; i < 1000 && Winner(0) != "graph:eng1"; ++i)
    absl::SleepFor(absl::Milliseconds(10));
  EXPECT_EQ(Winner(0), "graph:eng1");
  for (int i = 0; i < 1000 && told_ < 2; ++i) absl::SleepFor(absl::Milliseconds(10));
  EXPECT_EQ(told_, 2);
  EXPECT_TRUE(store_.ListBans()->empty());
}

TEST_F(BansTest, ABanThatExpiredWhileNoDaemonRanIsNotHeeded) {
  Ban ban = BanOf("eng1");
  ban.expire_time = clock_.Now() - absl::Hours(1);
  ASSERT_TRUE(store_.AddBan(ban).ok());
  ASSERT_TRUE(committer_.Load().ok());
  Know(0, {Timed(0, 30), Timed(1, 10)});
  EXPECT_EQ(Winner(0), "graph:eng1");
  EXPECT_TRUE(store_.ListBans()->empty());
}

TEST_F(BansTest, ABanIsListedWhileEveryAnswerHeedsIt) {
  Know(0, {Timed(0, 30), Timed(1, 10)});
  std::vector<size_t> listed;
  store_.on_read = [&] { listed.push_back(committer_.ListBans().size()); };
  const Ban ban = Add(BanOf("eng1"));
  EXPECT_EQ(committer_.ListBans().size(), 1U);
  ASSERT_TRUE(committer_.DeleteBan(ban.number, 0).ok());
  EXPECT_TRUE(committer_.ListBans().empty());
  EXPECT_EQ(listed, (std::vector<size_t>{0, 1}));
}

TEST_F(BansTest, ASecondBanOfTheSameRuleIsRefused) {
  Add(BanOf("eng1"));
  Ban same = BanOf("graph:eng1");
  same.reason = "another";
  EXPECT_EQ(committer_.AddBan(&same, 1).status().code(), absl::StatusCode::kAlreadyExists);
  same.data_type = DataType::kF16;
  EXPECT_TRUE(committer_.AddBan(&same, 1).ok());
}

TEST_F(BansTest, WhereTheDiskRefusesNothingIsBanned) {
  Know(0, {Timed(0, 30), Timed(1, 10)});
  store_.FailWith(absl::UnavailableError("full"));
  Ban ban = BanOf("eng1");
  EXPECT_TRUE(absl::IsUnavailable(committer_.AddBan(&ban, 1).status()));
  EXPECT_EQ(Winner(0), "graph:eng1");
}

TEST_F(BansTest, ATuningThatCannotBeReadHeedsTheBanAllTheSame) {
  Know(0, {Timed(0, 30), Timed(1, 10)});
  store_.unreadable = true;
  Ban ban = BanOf("eng1");
  EXPECT_EQ(committer_.AddBan(&ban, 1)->change_count(), 1);
  EXPECT_EQ(Winner(0), "graph:eng0");
  EXPECT_TRUE(committer_.DeleteBan(ban.number, 0).ok());
  EXPECT_EQ(Winner(0), "graph:eng1");
}

TEST_F(BansTest, APinTakesTheBestThatFitsItsPatternAndIsNotBanned) {
  Candidate first = Timed(1, 30), second = Timed(1, 20), third = Timed(1, 10);
  first.id = EngineConfig{1, {{2, 1}}};
  second.id = EngineConfig{1, {{2, 2}}};
  third.id = EngineConfig{1, {{2, 3}}};
  second.heuristic_rank = third.heuristic_rank = -1;
  Know(0, {Timed(0, 5), first, second, third});
  const auto pin = [this](const char* pattern) -> absl::StatusOr<std::string> {
    Pin made;
    made.key = TuningFor(0).key;
    const absl::Status status = committer_.PutPin(CandidatePattern::Parse(pattern).value(), &made);
    if (!status.ok()) return status;
    return ToText(made.candidate);
  };
  EXPECT_EQ(*pin("eng1"), "graph:eng1,k2=3");
  EXPECT_EQ(*pin("graph:eng1,k2=1"), "graph:eng1,k2=1");
  Ban ban = BanOf("eng1,k2=3");
  const auto effects = committer_.AddBan(&ban, 10);
  EXPECT_EQ(effects->change_count(), 0);  // the pin is of another
  EXPECT_EQ(*pin("eng1"), "graph:eng1,k2=2");
  const absl::Status banned = pin("eng1,k2=3").status();
  EXPECT_EQ(banned.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(banned.message(), "candidate: graph:eng1,k2=3 is banned by bans/1 (wrong results)");
  EXPECT_EQ(pin("eng9").status().code(), absl::StatusCode::kFailedPrecondition);
  Ban of_pin = BanOf("eng1,k2=2");
  const auto hit = committer_.AddBan(&of_pin, 10);
  ASSERT_EQ(hit->changes_size(), 1);
  EXPECT_TRUE(hit->changes(0).pinned());
  EXPECT_EQ(hit->changes(0).after(), "graph:eng0");
}

TEST_F(BansTest, AFleetsBanIsDeletedByWhoeverNamesIt) {
  Know(0, {Timed(0, 30), Timed(1, 10)});
  Ban fleets = BanOf("eng1");
  fleets.fleet_ban = 7;
  Add(BanOf("eng7"));
  Add(fleets);
  for (const int64_t wrong : {0, 2, 8}) {
    const absl::Status refused = committer_.DeleteBan(2, wrong);
    EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
    EXPECT_EQ(refused.message(),
              "ban: bans/2 is fleet ban 7: `convtune fleet ban delete 7` ends it everywhere, and "
              "on a node that has left the fleet `convtune ban delete 2 --fleet-ban 7`");
  }
  EXPECT_EQ(committer_.DeleteBan(1, 7).message(),
            "ban: bans/1 is this daemon's own, and not fleet ban 7");
  EXPECT_EQ(store_.ListBans()->size(), 2U);
  EXPECT_EQ(Winner(0), "graph:eng0");
  EXPECT_TRUE(committer_.DeleteBan(2, 7).ok());
  EXPECT_EQ(Winner(0), "graph:eng1");
  EXPECT_TRUE(committer_.DeleteBan(1, 0).ok());
}

TEST_F(BansTest, AFleetsPinIsDeletedByWhoeverNamesIt) {
  Know(0, {Timed(0, 30), Timed(1, 10)});
  Pin pin;
  pin.key = TuningFor(0).key;
  pin.fleet_pin = 5;
  ASSERT_TRUE(committer_.PutPin(CandidatePattern::Parse("eng0").value(), &pin).ok());
  const absl::Status refused = committer_.DeletePin(pin.key, 0);
  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
  EXPECT_EQ(refused.message(),
            absl::StrCat("pin: it is fleet pin 5: `convtune fleet unpin ", pin.key.problem_text,
                         " --environment '", pin.key.environment_text,
                         "'` ends it everywhere, and on a node that has left the fleet `convtune "
                         "unpin ",
                         pin.key.problem_text, " --environment '", pin.key.environment_text,
                         "' --fleet-pin 5`"));
  EXPECT_EQ(store_.ListPins()->size(), 1U);
  EXPECT_TRUE(committer_.DeletePin(pin.key, 5).ok());
  pin.fleet_pin = 0;
  ASSERT_TRUE(committer_.PutPin(CandidatePattern::Parse("eng0").value(), &pin).ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(committer_.DeletePin(pin.key, 5)));
  EXPECT_TRUE(committer_.DeletePin(pin.key, 0).ok());
  EXPECT_TRUE(absl::IsNotFound(committer_.DeletePin(pin.key, 5)));
}

}  // namespace
}  // namespace convtune::commit

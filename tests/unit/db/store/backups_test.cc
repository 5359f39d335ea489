#include "db/store/backups.h"

#include <future>

#include "proto/convert/record_codec.h"
#include "tests/fakes/memory_store.h"
#include "tests/unit/db/store/store_fixture.h"

namespace convtune::db::store {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class BackupsTest : public OpenStoreTest {
 protected:
  Backups::Options BackupOptions() { return BackupOptions(store_.get()); }
  Backups::Options BackupOptions(TuningStore* store) {
    return {store, &clock_, others_.File("backup"), absl::ZeroDuration(), 2};
  }
  std::vector<std::string> Names() const { return others_.Names("backup"); }

  TestFolder others_;
};

TEST_F(BackupsTest, ANewCopyDeletesTheOldestOfThoseNamedByTheirTime) {
  Backups backups(BackupOptions());
  EXPECT_FALSE(backups.GetState().has_newest_time());
  ASSERT_TRUE(backups.Write("mine.db").ok());
  // Older than all, and a time with a digit less than ours have.
  const std::string other = "convtune-20200101T00000Z.db";
  WriteWholeFile(others_.File("backup/" + other), "");
  for (int hour = 0; hour < 3; ++hour) {
    const auto copy = backups.Write("");
    ASSERT_TRUE(copy.ok()) << copy.status();
    EXPECT_EQ(copy->bytes(), static_cast<int64_t>(ReadWholeFile(copy->path()).size()));
    EXPECT_EQ(FromProto(backups.GetState().newest_time()), clock_.now);
    clock_.now += absl::Hours(1);
  }
  EXPECT_THAT(Names(), ElementsAre(other, "convtune-20260101T010000Z.db",
                                   "convtune-20260101T020000Z.db", "mine.db"));
  // A clock that is set back makes the new one no older than what is there.
  clock_.now -= absl::Hours(24);
  ASSERT_TRUE(backups.Write("").ok());
  EXPECT_THAT(Names(), ElementsAre(other, "convtune-20251231T030000Z.db",
                                   "convtune-20260101T020000Z.db", "mine.db"));
  EXPECT_EQ(FromProto(backups.GetState().newest_time()), clock_.now);
}

TEST_F(BackupsTest, TheScheduleBeginsWhenTheNewestIsOldEnough) {
  const auto next_of = [&](absl::Duration every) {
    std::promise<absl::StatusOr<std::string>> promise;
    auto options = BackupOptions();
    options.every = every;
    options.done = [&](const absl::StatusOr<std::string>& copy) { promise.set_value(copy); };
    const Backups backups(std::move(options));
    auto made = promise.get_future();
    // What is not due for hours is not made; what is due is made, however long that takes.
    if (every > absl::Hours(2))
      return made.wait_for(std::chrono::milliseconds(50)) == std::future_status::ready;
    EXPECT_TRUE(made.get().ok());
    return true;
  };
  EXPECT_TRUE(next_of(absl::Hours(1)));
  clock_.now += absl::Hours(1);
  EXPECT_TRUE(next_of(absl::Hours(1)));
  clock_.now += absl::Hours(2);
  EXPECT_FALSE(next_of(absl::Hours(3)));
  EXPECT_THAT(Names(), ElementsAre("convtune-20260101T000000Z.db", "convtune-20260101T010000Z.db"));
}

TEST_F(BackupsTest, OfADamagedDatabaseThereIsNoCopyAndTheOlderOnesStay) {
  PutSamples(1);
  {
    Backups backups(BackupOptions());
    ASSERT_TRUE(backups.Write("").ok());
  }
  Reopen("UPDATE tunings SET tune_time_us = tune_time_us + 1");
  clock_.now += absl::Hours(9);
  std::promise<absl::StatusOr<std::string>> promise;
  auto options = BackupOptions();
  options.every = absl::Hours(1);
  options.done = [&](const absl::StatusOr<std::string>& copy) { promise.set_value(copy); };
  Backups backups(std::move(options));
  const absl::StatusOr<std::string> copy = promise.get_future().get();
  EXPECT_TRUE(absl::IsDataLoss(copy.status())) << copy.status();
  EXPECT_THAT(backups.GetState().error(), HasSubstr("tunings row"));
  EXPECT_EQ(FromProto(backups.GetState().newest_time()), clock_.now - absl::Hours(9));
  EXPECT_THAT(Names(), ElementsAre("convtune-20260101T000000Z.db"));
}

// Copies for as long as it may.
class SlowStore : public MemoryStore {
 public:
  absl::StatusOr<int64_t> Backup(const std::string&,
                                 const std::function<bool()>& stopped) override {
    begun.set_value();
    while (!stopped()) absl::SleepFor(absl::Milliseconds(1));
    return absl::CancelledError("interrupted");
  }
  std::promise<void> begun;
};

// Damaged.
class DamagedStore : public MemoryStore {
 public:
  absl::StatusOr<int64_t> Backup(const std::string&, const std::function<bool()>&) override {
    tries.push_back(SteadyTime::Now());
    if (tries.size() == 20) enough.set_value();
    return absl::DataLossError("tunings row 1");
  }
  std::vector<SteadyTime> tries;  // to be read once the schedule has stopped
  std::promise<void> enough;
};

TEST_F(BackupsTest, ADamagedDatabaseIsReadAgainLessAndLessOften) {
  DamagedStore store;
  auto options = BackupOptions(&store);
  options.every = absl::Milliseconds(16);
  options.retry = absl::Milliseconds(1);
  options.done = [](const absl::StatusOr<std::string>&) {};
  {
    const Backups backups(options);
    // Without a bound the twentieth would come after nine minutes.
    ASSERT_EQ(store.enough.get_future().wait_for(std::chrono::seconds(60)),
              std::future_status::ready);
  }
  for (int i = 1; i < 20; ++i) {
    EXPECT_GE(store.tries[i] - store.tries[i - 1],
              std::min(options.every, absl::Milliseconds(1 << (i - 1))))
        << i;
  }
}

TEST_F(BackupsTest, AStopBreaksACopyOff) {
  SlowStore store;
  auto options = BackupOptions(&store);
  {
    options.every = absl::Hours(1);
    options.done = [](const absl::StatusOr<std::string>&) { ADD_FAILURE() << "nothing was done"; };
    const Backups scheduled(options);
    store.begun.get_future().wait();
  }
  store.begun = {};
  options.every = absl::ZeroDuration();
  Backups backups(options);
  auto asked = std::async(std::launch::async, [&] { return backups.Write("mine.db").status(); });
  store.begun.get_future().wait();
  backups.Stop();
  EXPECT_TRUE(absl::IsUnavailable(asked.get()));
}

TEST_F(BackupsTest, ACopyThatIsBrokenOffIsNotThere) {
  PutSamples(2000);
  int looks = 0;  // of a whole copy: while it is written and while it is read back
  const std::string whole = others_.File("whole.db");
  ASSERT_TRUE(store_->Backup(whole, [&looks] { return ++looks < 0; }).ok());
  ASSERT_GT(looks, 1);
  std::filesystem::remove(whole);
  for (const int before : {0, looks / 2, looks - 1}) {
    int left = before;
    const auto bytes = store_->Backup(others_.File("copy.db"), [&left] { return left-- <= 0; });
    EXPECT_TRUE(absl::IsCancelled(bytes.status())) << before << " of " << looks;
    EXPECT_THAT(others_.Names(), ElementsAre());
  }
}

TEST_F(BackupsTest, LeftoversAreDeletedAndWhatCannotBeIsNamed) {
  auto options = BackupOptions();
  const std::string folder = others_.File("backup");
  const std::string stuck = "convtune-20200101T000000Z.db";
  std::filesystem::create_directories(folder + "/" + stuck);
  WriteWholeFile(folder + "/convtune-20200202T000000Z.db.partial-7", "half");
  WriteWholeFile(folder + "/convtune-20200202T000000Z.db.partial-7-journal", "half");
  WriteWholeFile(folder + "/convtune-20200303T000000Z.db", "old");
  Backups backups(options);
  ASSERT_TRUE(backups.Write("").ok());
  clock_.now += absl::Hours(1);
  ASSERT_TRUE(backups.Write("").ok());
  EXPECT_THAT(Names(),
              ElementsAre(stuck, "convtune-20260101T000000Z.db", "convtune-20260101T010000Z.db"));
  EXPECT_THAT(backups.GetState().error(), HasSubstr(stuck + " cannot be deleted"));
}

TEST_F(BackupsTest, AScheduleThatMadeNoneForTwoPeriodsSaysSo) {
  auto options = BackupOptions();
  options.every = absl::Hours(1);
  std::promise<void> made;
  options.done = [&made](const absl::StatusOr<std::string>&) { made.set_value(); };
  const Backups backups(std::move(options));
  made.get_future().wait();
  EXPECT_EQ(backups.GetState().error(), "");
  clock_.now += absl::Hours(2) + absl::Seconds(1);
  EXPECT_EQ(backups.GetState().error(), "none was made for two of its periods");
}

}  // namespace
}  // namespace convtune::db::store

#include "db/store/sqlite_store.h"

#include <sys/fsuid.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>

#include "tests/unit/db/store/store_fixture.h"

namespace convtune::db::store {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using SqliteStoreTest = StoreTest;

TEST_F(SqliteStoreTest, CloseLeavesTheFileAloneWithoutALog) {
  Fill(2);
  EXPECT_THAT(folder_.Names(), ElementsAre("convtune.db", "convtune.lock"));
}

TEST_F(SqliteStoreTest, EveryCallAfterCloseIsRefused) {
  auto store = Open();
  ASSERT_TRUE(store->Close().ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(store->Close()));
  EXPECT_TRUE(absl::IsFailedPrecondition(store->PutPin(SamplePin(1))));
  EXPECT_TRUE(absl::IsFailedPrecondition(store->GetTuning(SampleTuning(1).key).status()));
  EXPECT_TRUE(absl::IsFailedPrecondition(store->Check().status()));
  EXPECT_TRUE(absl::IsFailedPrecondition(store->Compact().status()));
}

TEST_F(SqliteStoreTest, KeepsNothingInAFileThatIsNotAtItsPlaceAnyMore) {
  auto store = Open();
  const std::string path = folder_.File("convtune.db"), aside = folder_.File("aside");
  EXPECT_TRUE(store->InPlace());
  ASSERT_EQ(rename(path.c_str(), aside.c_str()), 0);
  EXPECT_FALSE(store->InPlace());
  const absl::Status status = store->PutPin(SamplePin(1));
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("was moved, deleted or replaced"));
  std::ofstream(path) << "another file";
  EXPECT_FALSE(store->InPlace());
  ASSERT_EQ(rename(aside.c_str(), path.c_str()), 0);
  EXPECT_TRUE(store->PutPin(SamplePin(1)).ok());
}

TEST_F(SqliteStoreTest, SaysThatTheFileCannotBeLookedAt) {
  auto store = Open();
  ASSERT_EQ(chmod(folder_.path().c_str(), 0), 0);
  const uid_t self = static_cast<uid_t>(setfsuid(65534));  // root may look everywhere
  const absl::Status status = store->PutPin(SamplePin(1));
  setfsuid(self);
  ASSERT_EQ(chmod(folder_.path().c_str(), 0700), 0);
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("cannot be looked at, so nothing can be kept: Permission denied"));
  EXPECT_TRUE(store->PutPin(SamplePin(1)).ok());
}

TEST_F(SqliteStoreTest, MakesTheStateDirectory) {
  auto options = Options();
  options.state_dir = folder_.File("new");
  EXPECT_NE(Open(options), nullptr);
  EXPECT_THAT(folder_.Names(), ElementsAre("new"));
}

TEST_F(SqliteStoreTest, ASecondStoreOnTheSameDirectoryIsRefused) {
  const auto store = Open();
  const absl::Status status = SqliteStore::Open(Options()).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("process " + std::to_string(getpid())));
}

TEST_F(SqliteStoreTest, RefusesANetworkFileSystemUnlessAllowed) {
  auto options = Options();
  options.file_system_probe = [](const std::string&) {
    return sqlite::FileSystemInfo{0x6969, "nfs4"};
  };
  const absl::Status status = SqliteStore::Open(options).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("NFS"));
  EXPECT_THAT(folder_.Names(), ElementsAre());
  options.allow_network_fs = true;
  EXPECT_NE(Open(options), nullptr);
}

TEST_F(SqliteStoreTest, AReadOnlyStoreServesAndChangesNothing) {
  Fill(2);
  const auto names = folder_.Names();
  const std::string before = ReadWholeFile(DatabasePath());
  auto options = Options();
  options.read_only = true;
  auto store = Open(options);
  ASSERT_NE(store, nullptr);
  EXPECT_TRUE(store->read_only());
  EXPECT_EQ(*store->GetTuning(SampleTuning(2).key), SampleTuning(2));
  EXPECT_TRUE(absl::IsUnavailable(store->PutTuning(SampleTuning(3), SampleEnvironment())));
  EXPECT_TRUE(store->Close().ok());
  EXPECT_EQ(folder_.Names(), names);
  EXPECT_EQ(ReadWholeFile(DatabasePath()), before);
}

TEST_F(SqliteStoreTest, AReadOnlyStoreWithoutAFileHasNothingAndMakesNothing) {
  auto options = Options();
  options.read_only = true;
  auto store = Open(options);
  ASSERT_NE(store, nullptr);
  EXPECT_TRUE(absl::IsNotFound(store->GetTuning(SampleTuning(1).key).status()));
  EXPECT_TRUE(absl::IsUnavailable(store->PutTuning(SampleTuning(1), SampleEnvironment())));
  EXPECT_TRUE(store->Close().ok());
  EXPECT_THAT(folder_.Names(), ElementsAre());
}

TEST_F(SqliteStoreTest, ABackupOpensAsAStoreWithTheSameTunings) {
  auto store = Open();
  ASSERT_TRUE(store->PutTuning(SampleTuning(1), SampleEnvironment()).ok());
  const TestFolder other;
  const auto bytes = store->Backup(other.File("convtune.db"), {});
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  EXPECT_EQ(*bytes, static_cast<int64_t>(ReadWholeFile(other.File("convtune.db")).size()));
  EXPECT_THAT(other.Names(), ElementsAre("convtune.db"));
  auto options = Options();
  options.state_dir = other.path();
  auto copy = Open(options);
  ASSERT_NE(copy, nullptr);
  EXPECT_EQ(*copy->GetTuning(SampleTuning(1).key), SampleTuning(1));
}

TEST_F(SqliteStoreTest, ChecksInTheMiddleOfALargeLog) {
  // More than one checkpoint's worth of pages.
  auto store = Open();
  for (int n = 0; n < 300; ++n) {
    ASSERT_TRUE(store->PutTuning(SampleTuning(n), SampleEnvironment()).ok());
  }
  EXPECT_LT(store->SizeBytes(), int64_t{16} << 20);
  EXPECT_THAT(store->Check()->findings(), ElementsAre());
}

}  // namespace
}  // namespace convtune::db::store

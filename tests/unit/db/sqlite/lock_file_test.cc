#include "db/sqlite/state_folder.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/unit/db/test_folder.h"

namespace convtune::db::sqlite {
namespace {

class LockFileTest : public ::testing::Test {
 protected:
  TestFolder folder_;
  const std::string path_ = folder_.File("x.lock");
};

TEST_F(LockFileTest, GoesWithTheObjectAndTheFileStays) {
  {
    const auto lock = LockFile(path_);
    EXPECT_TRUE(absl::IsFailedPrecondition(LockFile(path_).status()));
  }
  EXPECT_TRUE(LockFile(path_).ok());
  EXPECT_EQ(ReadWholeFile(path_), std::to_string(getpid()) + "\n");
}

TEST_F(LockFileTest, ReadersShareItAndKeepWritersOut) {
  { const auto lock = LockFile(path_); }
  const auto one = ShareLockFile(path_);
  const auto two = ShareLockFile(path_);
  EXPECT_TRUE(one.ok() && two.ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(LockFile(path_).status()));
}

TEST_F(LockFileTest, AReaderMakesNoFile) {
  EXPECT_TRUE(ShareLockFile(path_).ok());
  EXPECT_TRUE(folder_.Names().empty());
}

TEST_F(LockFileTest, AFolderThatDoesNotExistIsUnavailable) {
  EXPECT_TRUE(absl::IsUnavailable(LockFile(folder_.File("no/x.lock")).status()));
}

}  // namespace
}  // namespace convtune::db::sqlite

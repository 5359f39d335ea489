#include "db/sqlite/state_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/db/test_folder.h"

namespace convtune::db::sqlite {
namespace {

using ::testing::HasSubstr;

// A child process that holds the lock until it is killed.
class Holder {
 public:
  explicit Holder(const std::string& path) {
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    pid_ = fork();
    if (pid_ == 0) {
      const auto lock = LockFile(path);
      const ssize_t written = write(ends[1], lock.ok() ? "+" : "-", 1);
      static_cast<void>(written);
      while (true) {
        pause();
      }
    }
    char byte = 0;
    EXPECT_EQ(read(ends[0], &byte, 1), 1);
    EXPECT_EQ(byte, '+');
    close(ends[0]);
    close(ends[1]);
  }
  ~Holder() { Kill(); }
  void Kill() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
      pid_ = -1;
    }
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
};

class LockFileTest : public ::testing::Test {
 protected:
  TestFolder folder_;
  const std::string path_ = folder_.File("x.lock");
};

TEST_F(LockFileTest, ASecondProcessIsRefusedAndToldWhoHasIt) {
  const Holder holder(path_);
  const absl::Status status = LockFile(path_).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("process " + std::to_string(holder.pid()) + ","));
}

TEST_F(LockFileTest, AKilledProcessFreesIt) {
  Holder holder(path_);
  holder.Kill();
  EXPECT_TRUE(LockFile(path_).ok());
  EXPECT_EQ(ReadWholeFile(path_), std::to_string(getpid()) + "\n");
}

TEST_F(LockFileTest, GoesWithTheObjectAndTheFileStays) {
  { const auto lock = LockFile(path_); }
  EXPECT_TRUE(LockFile(path_).ok());
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

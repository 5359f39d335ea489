// What takes the place of a file, and what must not.
#include "client/cli/output/atomic_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/unit/temp_dir.h"

namespace convtune::cli::output {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class AtomicFileTest : public testing::Test {
 protected:
  std::string Path(const std::string& name) const { return folder_.path(name); }

  static std::string Read(const std::string& path) {
    std::stringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }

  static absl::Status Put(const std::string& path, const std::string& bytes) {
    return AtomicFile::WriteWhole(path, "OUT", bytes);
  }

  TempDir folder_;
};

TEST_F(AtomicFileTest, TakesThePlaceOfWhatWasThere) {
  ASSERT_TRUE(Put(Path("a"), "old").ok());
  ASSERT_TRUE(Put(Path("a"), "new").ok());
  EXPECT_EQ(Read(Path("a")), "new");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_.path()), {}), 1);
}

TEST_F(AtomicFileTest, TakesOnlyThePlaceOfAFileOfItsKindWhereThatIsAskedFor) {
  const auto over = [this](const std::string& name) {
    return AtomicFile::CreateOver(Path(name), "FILE", {"CVTNBNDL", "{\"place\":"}).status();
  };
  EXPECT_TRUE(over("absent").ok());
  for (const char* own : {"", "CVTNBNDL and more", "{\"place\":{}}"}) {
    std::ofstream(Path("own"), std::ios::trunc) << own;
    EXPECT_TRUE(over("own").ok()) << own;
  }
  for (const char* other : {"thesis", "CVTNBND", "{\"plan\":1}"}) {
    std::ofstream(Path("other"), std::ios::trunc) << other;
    const absl::Status status = over("other");
    EXPECT_TRUE(absl::IsInvalidArgument(status));
    EXPECT_THAT(std::string(status.message()), HasSubstr("FILE: " + Path("other")));
    EXPECT_EQ(Read(Path("other")), other);
  }
}

TEST_F(AtomicFileTest, LeavesNothingWithoutACommit) {
  { ASSERT_TRUE((*AtomicFile::Create(Path("a"), "OUT"))->Write("half").ok()); }
  EXPECT_TRUE(fs::is_empty(folder_.path()));
}

TEST_F(AtomicFileTest, WritesWhatALinkNames) {
  ASSERT_TRUE(Put(Path("real"), "old").ok());
  fs::create_symlink("real", Path("link"));
  ASSERT_TRUE(Put(Path("link"), "new").ok());
  EXPECT_TRUE(fs::is_symlink(Path("link")));
  EXPECT_EQ(Read(Path("real")), "new");
}

TEST_F(AtomicFileTest, WritesWhatALinkNamesAlsoWhereItIsNotThereYet) {
  fs::create_directory(Path("days"));
  fs::create_symlink("days/latest", Path("link"));
  fs::create_symlink("../today", Path("days/latest"));
  ASSERT_TRUE(Put(Path("link"), "new").ok());
  EXPECT_TRUE(fs::is_symlink(Path("link")));
  EXPECT_TRUE(fs::is_symlink(Path("days/latest")));
  EXPECT_FALSE(fs::is_symlink(Path("today")));
  EXPECT_EQ(Read(Path("today")), "new");
}

TEST_F(AtomicFileTest, LinksInACircleStayAsTheyAre) {
  fs::create_symlink("b", Path("a"));
  fs::create_symlink("a", Path("b"));
  const absl::Status status = Put(Path("a"), "x");
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("a cannot be written: "));
  EXPECT_TRUE(fs::is_symlink(Path("a")));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_.path()), {}), 2);
}

TEST_F(AtomicFileTest, AFolderThatMayNotBeListedTakesAFile) {
  constexpr uid_t kNobody = 65534;
  const bool root = geteuid() == 0;  // whom no mode keeps out
  if (root) {
    ASSERT_EQ(chown(folder_.path().c_str(), kNobody, kNobody), 0);
  }
  ASSERT_EQ(chmod(folder_.path().c_str(), 0300), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    if (root && (setgid(kNobody) != 0 || setuid(kNobody) != 0)) _exit(2);
    _exit(Put(Path("a"), "x").ok() ? 0 : 1);
  }
  int ended = 0;
  ASSERT_EQ(waitpid(child, &ended, 0), child);
  ASSERT_EQ(chmod(folder_.path().c_str(), 0700), 0);
  EXPECT_TRUE(WIFEXITED(ended));
  EXPECT_EQ(WEXITSTATUS(ended), 0);
  EXPECT_EQ(Read(Path("a")), "x");
}

TEST_F(AtomicFileTest, DoesNotTakeTheNameOfWhatIsNoFile) {
  ASSERT_EQ(mkfifo(Path("pipe").c_str(), 0600), 0);
  fs::create_symlink(Path("pipe"), Path("link"));
  for (const std::string& path : {Path("pipe"), Path("link"), folder_.path(), std::string("-")}) {
    const absl::Status status = Put(path, "x");
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << path;
    EXPECT_THAT(std::string(status.message()), testing::StartsWith("OUT: "));
  }
  EXPECT_TRUE(fs::is_fifo(Path("pipe")));
}

TEST_F(AtomicFileTest, ASignalTakesTheTemporaryFilesAlong) {
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      const auto first = AtomicFile::Create(Path("a"), "OUT");
      const auto second = AtomicFile::Create(Path("b"), "OUT");
      raise(number);
      _exit(0);
    }
    int ended = 0;
    ASSERT_EQ(waitpid(child, &ended, 0), child);
    EXPECT_TRUE(WIFSIGNALED(ended));
    EXPECT_EQ(WTERMSIG(ended), number);
    EXPECT_TRUE(fs::is_empty(folder_.path()));
  }
}

}  // namespace
}  // namespace convtune::cli::output

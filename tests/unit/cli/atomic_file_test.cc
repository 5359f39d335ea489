// What takes the place of a file, and what must not.
#include "client/cli/atomic_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

namespace convtune {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class AtomicFileTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "atomic_file_XXXXXX";
    ASSERT_NE(mkdtemp(folder_.data()), nullptr);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string Path(const std::string& name) const { return folder_ + "/" + name; }

  static std::string Read(const std::string& path) {
    std::stringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }

  static absl::Status Put(const std::string& path, const std::string& bytes) {
    auto file = AtomicFile::Create(path);
    if (!file.ok()) return file.status();
    if (absl::Status status = (*file)->Write(bytes); !status.ok()) return status;
    return (*file)->Commit();
  }

  std::string folder_;
};

TEST_F(AtomicFileTest, TakesThePlaceOfWhatWasThere) {
  ASSERT_TRUE(Put(Path("a"), "old").ok());
  ASSERT_TRUE(Put(Path("a"), "new").ok());
  EXPECT_EQ(Read(Path("a")), "new");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 1);
}

TEST_F(AtomicFileTest, LeavesNothingWithoutACommit) {
  { ASSERT_TRUE((*AtomicFile::Create(Path("a")))->Write("half").ok()); }
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(AtomicFileTest, WritesWhatALinkNames) {
  ASSERT_TRUE(Put(Path("real"), "old").ok());
  fs::create_symlink("real", Path("link"));
  ASSERT_TRUE(Put(Path("link"), "new").ok());
  EXPECT_TRUE(fs::is_symlink(Path("link")));
  EXPECT_EQ(Read(Path("real")), "new");
}

TEST_F(AtomicFileTest, DoesNotTakeTheNameOfWhatIsNoFile) {
  ASSERT_EQ(mkfifo(Path("pipe").c_str(), 0600), 0);
  fs::create_symlink(Path("pipe"), Path("link"));
  for (const std::string& path : {Path("pipe"), Path("link"), folder_, std::string("-")}) {
    const absl::Status status = Put(path, "x");
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << path;
    EXPECT_THAT(std::string(status.message()), HasSubstr("FILE: "));
  }
  EXPECT_TRUE(fs::is_fifo(Path("pipe")));
}

TEST_F(AtomicFileTest, ASignalTakesTheTemporaryFilesAlong) {
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      const auto first = AtomicFile::Create(Path("a"));
      const auto second = AtomicFile::Create(Path("b"));
      raise(number);
      _exit(0);
    }
    int ended = 0;
    ASSERT_EQ(waitpid(child, &ended, 0), child);
    EXPECT_TRUE(WIFSIGNALED(ended));
    EXPECT_EQ(WTERMSIG(ended), number);
    EXPECT_TRUE(fs::is_empty(folder_));
  }
}

}  // namespace
}  // namespace convtune

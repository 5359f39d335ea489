#include <gtest/gtest.h>
#include <pwd.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "db/snapshot/snapshot_file.h"
#include "tests/unit/db/test_folder.h"
#include "tests/unit/snapshot_folders.h"

namespace convtune::snapshot {
namespace {

TEST(FindSnapshotFolder, IsTheOneOfTheTable) {
  ForEachSnapshotFolderCase(kSnapshotFile, [](const std::string& folder) {
    EXPECT_EQ(FindSnapshotFolder().path, folder);
  });
}

TEST(FindSnapshotFolder, AFolderThatCanBeReadAndNotWrittenToServes) {
  const db::TestFolder root;
  const std::string folder = root.File("convtune/snapshot");
  std::filesystem::create_directories(folder);
  db::WriteWholeFile(folder + "/" + kSnapshotFile, "x");
  chmod(folder.c_str(), 0555);
  setenv("XDG_STATE_HOME", root.path().c_str(), 1);
  EXPECT_EQ(FindSnapshotFolder().path, folder);
  unsetenv("XDG_STATE_HOME");
  chmod(folder.c_str(), 0755);
}

TEST(FindSnapshotFolder, WithoutAHomeItIsThatOfThePasswordFile) {
  if (access("/var/lib/convtune/snapshot", X_OK) == 0) GTEST_SKIP() << "a daemon is installed";
  const std::string home = getenv("HOME") != nullptr ? getenv("HOME") : "/";
  for (const char* name : {"HOME", "XDG_STATE_HOME", "STATE_DIRECTORY"}) unsetenv(name);
  EXPECT_EQ(FindSnapshotFolder().path,
            std::string(getpwuid(geteuid())->pw_dir) + "/.local/state/convtune/snapshot");
  // As the interposer asks.
  EXPECT_STREQ(FindSnapshotFolder(/*ask_for_user=*/false).path, "/var/lib/convtune/snapshot");
  setenv("HOME", home.c_str(), 1);
}

}  // namespace
}  // namespace convtune::snapshot

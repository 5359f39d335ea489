#include "client/preload/state.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "db/snapshot/snapshot.h"
#include "tests/unit/snapshot_folders.h"
#include "tests/unit/temp_dir.h"

namespace convtune::preload {
namespace {

class PreloadSettingsTest : public ::testing::Test {
 protected:
  void SetUp() override { unsetenv("CONVTUNE_SNAPSHOT"); }
  void TearDown() override {
    unsetenv("STATE_DIRECTORY");
    unsetenv("XDG_STATE_HOME");
  }

  void Publish(const std::string& folder) {
    std::filesystem::create_directories(folder_.path(folder));
    std::ofstream(In(folder)) << "x";
  }
  static std::string Snapshot() {
    Settings settings;
    ReadSettings(&settings);
    return settings.snapshot;
  }
  std::string In(const std::string& folder) const {
    return folder_.path(folder) + "/" + snapshot::kSnapshotFile;
  }

  TempDir folder_;
};

TEST_F(PreloadSettingsTest, TheStateFolderOfAServiceWithoutASnapshotIsPassedOver) {
  std::filesystem::create_directories(folder_.path("server"));
  setenv("STATE_DIRECTORY", folder_.path("server:/else").c_str(), 1);
  setenv("XDG_STATE_HOME", folder_.path("home").c_str(), 1);
  Publish("home/convtune/snapshot");
  EXPECT_EQ(Snapshot(), In("home/convtune/snapshot"));
  Publish("server/snapshot");
  EXPECT_EQ(Snapshot(), In("server/snapshot"));
}

TEST_F(PreloadSettingsTest, AFolderThatIsThereServesBeforeTheDaemonHasPublished) {
  setenv("XDG_STATE_HOME", folder_.path("home").c_str(), 1);
  std::filesystem::create_directories(folder_.path("home/convtune/snapshot"));
  EXPECT_EQ(Snapshot(), In("home/convtune/snapshot"));
}

TEST_F(PreloadSettingsTest, TheFolderIsTheOneOfTheTable) {
  ForEachSnapshotFolderCase(snapshot::kSnapshotFile, [](const std::string& folder) {
    EXPECT_EQ(Snapshot(), folder + "/" + snapshot::kSnapshotFile);
  });
}

TEST_F(PreloadSettingsTest, TheLimitOnTheWorkspaceIsASizeAsTheCommandLineTakesIt) {
  const auto read = [](const char* value) {
    setenv("CONVTUNE_PRELOAD_MAX_WORKSPACE", value, 1);
    Settings settings;
    ReadSettings(&settings);
    unsetenv("CONVTUNE_PRELOAD_MAX_WORKSPACE");
    return std::pair(settings.max_workspace, settings.off);
  };
  EXPECT_EQ(read("").first, -1);
  EXPECT_EQ(read("256MiB"), std::pair(int64_t{256} << 20, false));
  EXPECT_TRUE(read("256").second);
}

TEST_F(PreloadSettingsTest, WhatIsNamedIsTaken) {
  setenv("CONVTUNE_SNAPSHOT", "/named", 1);
  EXPECT_EQ(Snapshot(), std::string("/named/") + snapshot::kSnapshotFile);
  unsetenv("CONVTUNE_SNAPSHOT");
}

}  // namespace
}  // namespace convtune::preload

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

namespace convtune::preload {
namespace {

class PreloadSettingsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = "/tmp/convtune-preload-XXXXXX";
    folder_ = mkdtemp(name.data());
    unsetenv("CONVTUNE_SNAPSHOT");
  }
  void TearDown() override {
    unsetenv("STATE_DIRECTORY");
    unsetenv("XDG_STATE_HOME");
    std::filesystem::remove_all(folder_);
  }

  void Publish(const std::string& folder) {
    std::filesystem::create_directories(folder_ + "/" + folder);
    std::ofstream(folder_ + "/" + folder + "/" + snapshot::kSnapshotFile) << "x";
  }
  static std::string Snapshot() {
    Settings settings;
    ReadSettings(&settings);
    return settings.snapshot;
  }
  std::string In(const std::string& folder) const {
    return folder_ + "/" + folder + "/" + snapshot::kSnapshotFile;
  }

  std::string folder_;
};

TEST_F(PreloadSettingsTest, TheStateFolderOfAServiceWithoutASnapshotIsPassedOver) {
  std::filesystem::create_directories(folder_ + "/server");
  setenv("STATE_DIRECTORY", (folder_ + "/server:/else").c_str(), 1);
  setenv("XDG_STATE_HOME", (folder_ + "/home").c_str(), 1);
  Publish("home/convtune/snapshot");
  EXPECT_EQ(Snapshot(), In("home/convtune/snapshot"));
  Publish("server/snapshot");
  EXPECT_EQ(Snapshot(), In("server/snapshot"));
}

TEST_F(PreloadSettingsTest, AFolderThatIsThereServesBeforeTheDaemonHasPublished) {
  setenv("XDG_STATE_HOME", (folder_ + "/home").c_str(), 1);
  std::filesystem::create_directories(folder_ + "/home/convtune/snapshot");
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
  for (const auto& [text, bytes] :
       std::vector<std::pair<const char*, int64_t>>{{"0", 0},
                                                    {"0B", 0},
                                                    {"131B", 131},
                                                    {"256MiB", int64_t{256} << 20},
                                                    {"3KiB", 3072},
                                                    {"2GiB", int64_t{2} << 30},
                                                    {"5KB", 5000},
                                                    {"5MB", 5'000'000},
                                                    {"5GB", 5'000'000'000}}) {
    EXPECT_EQ(read(text), std::pair(bytes, false)) << text;
  }
  for (const char* text : {"256", "-1B", "+1B", " 1B", "1 MiB", "1mib", "1.5GiB", "x", "MiB",
                           "9223372036854775807KiB", "99999999999999999999B"}) {
    EXPECT_TRUE(read(text).second) << text;
  }
}

TEST_F(PreloadSettingsTest, WhatIsNamedIsTaken) {
  setenv("CONVTUNE_SNAPSHOT", "/named", 1);
  EXPECT_EQ(Snapshot(), std::string("/named/") + snapshot::kSnapshotFile);
  unsetenv("CONVTUNE_SNAPSHOT");
}

}  // namespace
}  // namespace convtune::preload

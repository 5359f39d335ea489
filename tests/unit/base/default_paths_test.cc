#include "proto/base/default_paths.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "tests/unit/temp_dir.h"
#include "tests/unit/unix_socket.h"

namespace convtune {
namespace {

class DefaultPathsTest : public ::testing::Test {
 protected:
  std::string Folder(const std::string& name) const {
    std::filesystem::create_directories(folder_.path(name));
    return folder_.path(name);
  }
  std::string Listen(const std::string& name) {
    const std::string path = Folder(name) + "/convtune.sock";
    sockets_.push_back(BindSocket(path));
    return path;
  }

  TempDir folder_;
  std::vector<UniqueFd> sockets_;
};

TEST_F(DefaultPathsTest, ASocketThatIsThereIsTakenBeforeOneThatIsNot) {
  const std::string own = folder_.path("own/convtune.sock");
  const std::string system = Listen("system");
  EXPECT_EQ(FirstSocket({own, system}), system);
  EXPECT_EQ(FirstSocket({own, folder_.path("nobody")}), own);
  Listen("own");
  EXPECT_EQ(FirstSocket({own, system}), own);
}

TEST_F(DefaultPathsTest, WhatIsNoSocketOrMayBeAnotherUsersIsPassedOver) {
  const std::string system = Listen("system");
  const std::string file = Folder("file") + "/convtune.sock";
  std::ofstream(file) << "text";
  EXPECT_EQ(FirstSocket({file, system}), system);
  const std::string open = Listen("open");
  chmod(folder_.path("open").c_str(), 0777);
  EXPECT_EQ(FirstSocket({open, system}), system);
}

TEST_F(DefaultPathsTest, ClientsLookForTheSystemsSocketLast) {
  const std::vector<std::string> paths = ClientSocketPaths();
  EXPECT_EQ(paths.front(), DefaultSocketPath());
  EXPECT_EQ(paths.back(), "/run/convtune/convtune.sock");
}

TEST(FindProfile, FileIsTakenAsItIs) {
  TempDir dir;
  std::ofstream(dir.path("mine.json")) << "{}";
  EXPECT_EQ(FindProfile(dir.path("mine.json")).value(), dir.path("mine.json"));
}

TEST(FindProfile, NameIsLookedUpWithAndWithoutItsPrefix) {
  const auto found = FindProfile("nvidia-h200");
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_THAT(*found, testing::EndsWith("/nvidia-h200.json"));
  EXPECT_EQ(FindProfile("profile:nvidia-h200").value(), *found);
}

TEST(FindProfile, UnknownNameIsNotFound) {
  for (const char* name : {"nvidia-none", "../profiles/nvidia-h200", ""}) {
    EXPECT_EQ(FindProfile(name).status().code(), absl::StatusCode::kNotFound) << name;
  }
}

}  // namespace
}  // namespace convtune

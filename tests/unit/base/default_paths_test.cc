#include "proto/base/default_paths.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

namespace convtune {
namespace {

class DefaultPathsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = "/tmp/convtune-paths-XXXXXX";
    folder_ = mkdtemp(name.data());
  }
  void TearDown() override {
    for (const int socket : sockets_) close(socket);
    std::filesystem::remove_all(folder_);
  }

  std::string Folder(const std::string& name) const {
    std::filesystem::create_directories(folder_ + "/" + name);
    return folder_ + "/" + name;
  }
  std::string Listen(const std::string& name) {
    const std::string path = Folder(name) + "/convtune.sock";
    sockets_.push_back(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    memcpy(address.sun_path, path.c_str(), path.size() + 1);
    EXPECT_EQ(bind(sockets_.back(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    return path;
  }

  std::string folder_;
  std::vector<int> sockets_;
};

TEST_F(DefaultPathsTest, ASocketThatIsThereIsTakenBeforeOneThatIsNot) {
  const std::string own = folder_ + "/own/convtune.sock";
  const std::string system = Listen("system");
  EXPECT_EQ(FirstSocket({own, system}), system);
  EXPECT_EQ(FirstSocket({own, folder_ + "/nobody"}), own);
  Listen("own");
  EXPECT_EQ(FirstSocket({own, system}), own);
}

TEST_F(DefaultPathsTest, WhatIsNoSocketOrMayBeAnotherUsersIsPassedOver) {
  const std::string system = Listen("system");
  const std::string file = Folder("file") + "/convtune.sock";
  std::ofstream(file) << "text";
  EXPECT_EQ(FirstSocket({file, system}), system);
  const std::string open = Listen("open");
  chmod((folder_ + "/open").c_str(), 0777);
  EXPECT_EQ(FirstSocket({open, system}), system);
}

TEST_F(DefaultPathsTest, ClientsLookForTheSystemsSocketLast) {
  const std::vector<std::string> paths = ClientSocketPaths();
  EXPECT_EQ(paths.front(), DefaultSocketPath());
  EXPECT_EQ(paths.back(), "/run/convtune/convtune.sock");
}

}  // namespace
}  // namespace convtune

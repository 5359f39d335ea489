#include "server/rpc/http2/listen_address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "proto/base/default_paths.h"
#include "tests/unit/temp_dir.h"
#include "tests/unit/unix_socket.h"

namespace convtune::rpc::http2 {
namespace {

TEST(ListenAddress, APortMayBeZero) {
  ASSERT_TRUE(ListenAddress::Parse("localhost:0").ok());
  EXPECT_EQ(ListenAddress::Parse("localhost:0")->ToText(), "localhost:0");
}

TEST(ListenAddress, ASocketMayHaveARole) {
  EXPECT_EQ(ListenAddress::Parse("unix:/s=unix:x")->role, Role::kAdmin);
  EXPECT_EQ(ListenAddress::Parse("unix:/s=unix:x")->target, "/s=unix:x");
  EXPECT_EQ(ListenAddress::Parse("admin=unix:/s")->role, Role::kAdmin);
  EXPECT_EQ(ListenAddress::Parse("tune=unix:/s")->role, Role::kTune);
  const auto read = ListenAddress::Parse("read=unix:/s");
  EXPECT_EQ(read->role, Role::kRead);
  EXPECT_EQ(read->ToText(), "unix:/s");
}

TEST(ListenAddress, RefusesEverythingElse) {
  for (const char* text : {"", "localhost:-1", "read=localhost:80", "none=unix:/s", "owner=unix:/s",
                           "=unix:/s", "read=unix:"}) {
    EXPECT_EQ(ListenAddress::Parse(text).status().code(), absl::StatusCode::kInvalidArgument)
        << text;
  }
}

TEST(PrepareSocketPath, ReplacesAStaleSocket) {
  TempDir dir;
  BindSocket(dir.path("s"));
  EXPECT_TRUE(PrepareSocketPath(dir.path("s")).ok());
  EXPECT_FALSE(std::filesystem::exists(dir.path("s")));
}

TEST(PrepareSocketPath, LeavesOtherFilesAlone) {
  TempDir dir;
  std::ofstream(dir.path("s")) << "data";
  EXPECT_EQ(PrepareSocketPath(dir.path("s")).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(std::filesystem::exists(dir.path("s")));
}

TEST(PrepareSocketPath, RefusesAnOpenFolderInASharedOne) {
  TempDir dir;
  const std::string shared = dir.path("shared");
  ASSERT_EQ(mkdir(shared.c_str(), 0777), 0);
  ASSERT_EQ(chmod(shared.c_str(), 01777), 0);
  ASSERT_EQ(mkdir((shared + "/open").c_str(), 0777), 0);
  ASSERT_EQ(chmod((shared + "/open").c_str(), 0777), 0);
  EXPECT_EQ(PrepareSocketPath(shared + "/open/s").code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(PrepareSocketPath(shared + "/mine/s").ok());
  EXPECT_TRUE(IsPrivateDirectory(shared + "/mine"));
}

TEST(IsPrivateDirectory, RefusesLinksAndFiles) {
  TempDir dir;
  ASSERT_EQ(mkdir(dir.path("d").c_str(), 0700), 0);
  ASSERT_EQ(symlink(dir.path("d").c_str(), dir.path("l").c_str()), 0);
  std::ofstream(dir.path("f")) << "x";
  EXPECT_TRUE(IsPrivateDirectory(dir.path("d")));
  EXPECT_FALSE(IsPrivateDirectory(dir.path("l")));
  EXPECT_FALSE(IsPrivateDirectory(dir.path("f")));
  EXPECT_FALSE(IsPrivateDirectory(dir.path("none")));
}

}  // namespace
}  // namespace convtune::rpc::http2

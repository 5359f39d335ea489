#include "server/rpc/http2/listen_address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "proto/base/default_paths.h"
#include "tests/unit/rpc/temp_dir.h"

namespace convtune::rpc::http2 {
namespace {

// A socket that nobody listens on any more.
void MakeStaleSocket(const std::string& path) {
  const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  close(fd);
}

TEST(ListenAddress, ReadsBothForms) {
  const auto socket_address = ListenAddress::Parse("unix:/run/c.sock");
  ASSERT_TRUE(socket_address.ok());
  EXPECT_TRUE(socket_address->unix_socket);
  EXPECT_EQ(socket_address->target, "/run/c.sock");
  EXPECT_EQ(ListenAddress::Parse("unix:///run/c.sock")->target, "/run/c.sock");
  for (const char* text : {"localhost:0", "0.0.0.0:65535", "[::1]:80"}) {
    ASSERT_TRUE(ListenAddress::Parse(text).ok()) << text;
    EXPECT_FALSE(ListenAddress::Parse(text)->unix_socket);
    EXPECT_EQ(ListenAddress::Parse(text)->ToText(), text);
  }
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
  const std::string long_path = "unix:/" + std::string(107, 'a');
  for (const std::string& text :
       {std::string(""), std::string("unix:"), std::string("localhost"), std::string(":80"),
        std::string("localhost:"), std::string("localhost:65536"), std::string("localhost:-1"),
        std::string("localhost:http"), std::string("::1:80"), std::string("unix-abstract:x"),
        std::string("dns:///localhost:80"), std::string("read=localhost:80"),
        std::string("none=unix:/s"), std::string("owner=unix:/s"), std::string("=unix:/s"),
        std::string("read=unix:"), "read=" + long_path, long_path}) {
    EXPECT_EQ(ListenAddress::Parse(text).status().code(), absl::StatusCode::kInvalidArgument)
        << text;
  }
}

TEST(PrepareSocketPath, ReplacesAStaleSocket) {
  TempDir dir;
  MakeStaleSocket(dir.path("s"));
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

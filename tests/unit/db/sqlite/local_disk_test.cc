#include "db/sqlite/state_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace convtune::db::sqlite {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kFuse = 0x65735546;

TEST(LocalDiskTest, NetworkFileSystemsAreRefusedByName) {
  const std::pair<int64_t, const char*> cases[] = {
      {0x6969, "NFS"}, {0xFF534D42, "CIFS"}, {0xFE534D42, "SMB2"}, {0x01021997, "9p"}};
  for (const auto& [magic, name] : cases) {
    const absl::Status status = CheckLocalDisk("/state", {magic, ""});
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << name;
    EXPECT_THAT(std::string(status.message()), HasSubstr(name));
  }
}

TEST(LocalDiskTest, LocalFileSystemsAreTaken) {
  for (const int64_t magic : {0xEF53, 0x58465342, 0x01021994, 0x794C7630}) {
    EXPECT_TRUE(CheckLocalDisk("/state", {magic, ""}).ok()) << magic;
  }
}

TEST(LocalDiskTest, FuseIsTakenOnlyWhereItIsKnownToBeLocal) {
  EXPECT_TRUE(absl::IsFailedPrecondition(CheckLocalDisk("/state", {kFuse, "fuse.sshfs"})));
  EXPECT_TRUE(absl::IsFailedPrecondition(CheckLocalDisk("/state", {kFuse, ""})));
  EXPECT_TRUE(CheckLocalDisk("/state", {kFuse, "fuse.fuse-overlayfs"}).ok());
}

TEST(LocalDiskTest, TheSystemTellsTheTypeOfAMount) {
  const auto info = ProbeFileSystem("/proc/self");
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->magic, 0x9FA0);
  EXPECT_EQ(info->type_name, "proc");
}

TEST(LocalDiskTest, APathThatDoesNotExistIsUnavailable) {
  EXPECT_TRUE(absl::IsUnavailable(ProbeFileSystem("/no/such/path").status()));
}

}  // namespace
}  // namespace convtune::db::sqlite

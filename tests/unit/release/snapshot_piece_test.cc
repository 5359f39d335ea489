#include "server/release/publisher.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <string>

#include "db/snapshot/snapshot.h"
#include "tests/unit/db/test_folder.h"

namespace convtune::release {
namespace {

class SnapshotPieceTest : public testing::Test {
 protected:
  // A file of that version, replaced as a daemon does it.
  std::string Publish(uint64_t version, size_t bytes) {
    snapshot::SnapshotHeader header{};
    header.header_checksum = version;
    std::string file(bytes, static_cast<char>('a' + version % 26));
    memcpy(file.data(), &header, sizeof header);
    db::WriteWholeFile(folder_.File("next"), file);
    std::filesystem::rename(folder_.File("next"), folder_.File(snapshot::kSnapshotFile));
    return file;
  }

  absl::StatusOr<v1::ReadSnapshotResponse> Read(int64_t offset, uint64_t version) {
    v1::ReadSnapshotRequest request;
    request.set_offset(offset);
    request.set_version(version);
    return ReadSnapshotPiece(folder_.path(), request);
  }

  db::TestFolder folder_;
};

TEST_F(SnapshotPieceTest, PiecesMakeTheFile) {
  const std::string file = Publish(7, (5 << 20) / 2);
  std::string read;
  uint64_t version = 0;
  int pieces = 0;
  while (true) {
    const auto piece = Read(static_cast<int64_t>(read.size()), version);
    ASSERT_TRUE(piece.ok()) << piece.status();
    EXPECT_EQ(piece->size_bytes(), static_cast<int64_t>(file.size()));
    EXPECT_EQ(piece->version(), 7u);
    if (piece->chunk().empty()) break;
    EXPECT_LE(piece->chunk().size(), size_t{1} << 20);
    read += piece->chunk();
    version = piece->version();
    ++pieces;
  }
  EXPECT_EQ(pieces, 3);
  EXPECT_TRUE(read == file);
}

TEST_F(SnapshotPieceTest, WhoHasTheFileIsSentNothing) {
  Publish(7, 4096);
  const auto same = Read(0, 7);
  ASSERT_TRUE(same.ok()) << same.status();
  EXPECT_TRUE(same->chunk().empty());
  Publish(8, 4096);
  const auto other = Read(0, 7);
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_EQ(other->version(), 8u);
  EXPECT_EQ(other->chunk().size(), 4096u);
}

TEST_F(SnapshotPieceTest, AFileThatIsReplacedInBetweenIsNotMixed) {
  Publish(7, 3 << 20);
  ASSERT_TRUE(Read(0, 0).ok());
  Publish(8, 3 << 20);
  EXPECT_TRUE(absl::IsAborted(Read(1 << 20, 7).status()));
}

TEST_F(SnapshotPieceTest, NothingPublishedAndACutFileAreErrors) {
  EXPECT_TRUE(absl::IsNotFound(Read(0, 0).status()));
  db::WriteWholeFile(folder_.File(snapshot::kSnapshotFile), "CVTSNAP");
  const absl::Status cut = Read(0, 0).status();
  EXPECT_TRUE(absl::IsInternal(cut)) << cut;
  EXPECT_NE(std::string(cut.message()).find(folder_.path()), std::string::npos) << cut;
  EXPECT_NE(std::string(cut.message()).find("it is cut short"), std::string::npos) << cut;
}

}  // namespace
}  // namespace convtune::release

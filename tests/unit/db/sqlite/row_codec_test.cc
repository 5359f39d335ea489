#include "db/sqlite/row_codec.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>

namespace convtune::db::sqlite {
namespace {

int64_t ChecksumOf(const std::string& table, const std::function<void(RowEncoding&)>& add) {
  RowEncoding encoding(table);
  add(encoding);
  return encoding.Checksum();
}

TEST(RowEncodingTest, RowsThatDifferEncodeDifferently) {
  const std::set<int64_t> checksums = {
      ChecksumOf("t", [](RowEncoding&) {}),
      ChecksumOf("u", [](RowEncoding&) {}),
      ChecksumOf("t", [](RowEncoding& row) { row.Int(0); }),
      ChecksumOf("t", [](RowEncoding& row) { row.Real(0); }),
      ChecksumOf("t", [](RowEncoding& row) { row.Null(); }),
      ChecksumOf("t", [](RowEncoding& row) { row.Text(""); }),
      ChecksumOf("t", [](RowEncoding& row) { row.Blob(""); }),
      ChecksumOf("t", [](RowEncoding& row) { row.Text("ab"), row.Text("c"); }),
      ChecksumOf("t", [](RowEncoding& row) { row.Text("a"), row.Text("bc"); }),
      ChecksumOf("t", [](RowEncoding& row) { row.Text("abc"); })};
  EXPECT_EQ(checksums.size(), 10U);
}

TEST(RowEncodingTest, NegativeZeroEncodesAsItReadsBack) {
  EXPECT_EQ(ChecksumOf("t", [](RowEncoding& row) { row.Real(-0.0); }),
            ChecksumOf("t", [](RowEncoding& row) { row.Real(0.0); }));
}

TEST(TableTest, WritesItsSql) {
  const Table table{"t", {"a", "b"}};
  EXPECT_EQ(table.InsertSql(), "INSERT INTO t (a, b, checksum) VALUES (?, ?, ?)");
  EXPECT_EQ(table.UpsertSql("a"),
            "INSERT INTO t (a, b, checksum) VALUES (?, ?, ?) ON CONFLICT (a) DO UPDATE SET "
            "b = excluded.b, checksum = excluded.checksum");
  EXPECT_EQ(table.UpsertSql("a, b"),
            "INSERT INTO t (a, b, checksum) VALUES (?, ?, ?) ON CONFLICT (a, b) DO UPDATE SET "
            "checksum = excluded.checksum");
  EXPECT_EQ(table.SelectList("x"), "x.a, x.b, x.checksum");
}

}  // namespace
}  // namespace convtune::db::sqlite

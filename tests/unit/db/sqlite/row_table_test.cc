#include "db/sqlite/row_table.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>

namespace convtune::db::sqlite {
namespace {

// Of a row with these columns, as SQL writes them.
int64_t ChecksumOf(const std::string& columns) {
  const auto database = Database::Open({.path = ":memory:"});
  EXPECT_TRUE(database.ok()) << database.status();
  const auto checksum = (*database)->QueryInt("SELECT row_checksum(" + columns + ")");
  EXPECT_TRUE(checksum.ok()) << checksum.status();
  return checksum.value_or(0);
}

TEST(RowChecksumTest, RowsThatDifferEncodeDifferently) {
  std::set<int64_t> checksums;
  for (const char* columns : {"'t'", "'u'", "'t', 0", "'t', 0.0", "'t', NULL", "'t', ''",
                              "'t', x''", "'t', 'ab', 'c'", "'t', 'a', 'bc'", "'t', 'abc'"}) {
    checksums.insert(ChecksumOf(columns));
  }
  EXPECT_EQ(checksums.size(), 10U);
}

// As rows that were written earlier have it.
TEST(RowChecksumTest, IsThatOfTheEncoding) {
  const std::string encoding(
      "t\1\0\0\0\0\0\0\0t"
      "i\xfe\xff\xff\xff\xff\xff\xff\xff"
      "r\0\0\0\0\0\0\xf8\x3f"
      "b\2\0\0\0\0\0\0\0\0\xff"
      "n",
      40);
  EXPECT_EQ(ChecksumOf("'t', -2, 1.5, x'00ff', NULL"), static_cast<int64_t>(Checksum64(encoding)));
}

TEST(RowChecksumTest, NegativeZeroEncodesAsItReadsBack) {
  EXPECT_EQ(ChecksumOf("'t', -0.0"), ChecksumOf("'t', 0.0"));
}

// A field of every kind.
struct OddRow {
  static constexpr std::string_view kTable = "odd";
  static constexpr std::string_view kKey = "number";
  static void Visit(auto& row, auto& columns) {
    columns("number", row.number);
    columns("count", row.count);
    columns("real", row.real);
    columns("flag", row.flag);
    columns("text", row.text);
    columns.Blob("bytes", row.bytes);
    columns("origin", row.origin, Origin::kLocal, Origin::kFleet);
    columns("operation", row.operation, Operation::kFwd, Operation::kBwdFilter);
    columns("time_us", row.time);
    columns("end_us", row.end);
    columns("budget_us", row.budget);
    columns("candidate", row.candidate);
    columns("other", row.other);
    columns("pattern", row.pattern);
    columns("cudnn", row.cudnn);
  }
  std::string Label() const { return Concat("number ", number); }
  friend bool operator==(const OddRow&, const OddRow&) = default;

  int64_t number = 0;
  uint32_t count = 0;
  double real = 0;
  bool flag = false;
  std::string text;
  std::string bytes;
  Origin origin = Origin::kLocal;
  std::optional<Operation> operation;
  absl::Time time = absl::UnixEpoch();
  std::optional<absl::Time> end;
  absl::Duration budget;
  CandidateId candidate;
  std::optional<CandidateId> other;
  CandidatePattern pattern;
  CudnnRange cudnn;
};

class RowTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto database = Database::Open({.path = ":memory:"});
    ASSERT_TRUE(database.ok()) << database.status();
    database_ = *std::move(database);
    ASSERT_TRUE(database_
                    ->Execute("CREATE TABLE odd (number INTEGER PRIMARY KEY, count INTEGER, "
                              "real REAL, flag INTEGER, text TEXT, bytes BLOB, origin INTEGER, "
                              "operation INTEGER, time_us INTEGER, end_us INTEGER, "
                              "budget_us INTEGER, candidate TEXT, other TEXT, pattern TEXT, "
                              "cudnn TEXT, checksum INTEGER) STRICT")
                    .ok());
  }

  std::vector<OddRow> Rows() {
    corrupt_.clear();
    std::vector<OddRow> rows;
    EXPECT_TRUE(ReadRows<OddRow>(
                    *database_, "ORDER BY number",
                    [this](const std::string& text) { corrupt_.push_back(text); },
                    [&](OddRow row) { rows.push_back(std::move(row)); })
                    .ok());
    return rows;
  }

  std::unique_ptr<Database> database_;
  std::vector<std::string> corrupt_;
};

TEST_F(RowTest, FieldsComeBackAsTheyWere) {
  OddRow full;
  full.number = -5;
  full.count = 0xFFFFFFFF;
  full.real = 0.1;
  full.flag = true;
  full.text = std::string("a\0b", 3);
  full.bytes = std::string("\0\xff", 2);
  full.origin = Origin::kFleet;
  full.operation = Operation::kBwdData;
  full.time = absl::FromUnixMicros(-1);
  full.end = absl::FromUnixMicros(7);
  full.budget = absl::Microseconds(3);
  full.candidate = EngineConfig{34, {{2, 1}}};
  full.other = LegacyAlgorithm{1, 2};
  full.pattern = CandidatePattern::Parse("graph:eng47,k2=*").value();
  full.cudnn = CudnnRange::Parse(">=9.12,<9.20").value();
  OddRow empty;
  ASSERT_TRUE(PutRow(*database_, full).ok());
  ASSERT_TRUE(PutRow(*database_, empty).ok());
  EXPECT_EQ(Rows(), (std::vector<OddRow>{full, empty}));
  empty.number = -5;
  ASSERT_TRUE(PutRow(*database_, empty).ok());
  EXPECT_EQ(Rows()[0], empty);
}

TEST_F(RowTest, DamageNamesTheRowAndWhatIsWrong) {
  OddRow row;
  row.origin = static_cast<Origin>(4);  // of a later program
  ASSERT_TRUE(PutRow(*database_, row).ok());
  EXPECT_TRUE(Rows().empty());
  EXPECT_EQ(corrupt_, std::vector<std::string>{"odd row (number 0): origin: unknown number"});
  ASSERT_TRUE(database_->Run("UPDATE odd SET candidate = 'what'").ok());
  EXPECT_TRUE(Rows().empty());
  EXPECT_EQ(corrupt_, std::vector<std::string>{"odd row (number 0): the checksum does not match"});
}

}  // namespace
}  // namespace convtune::db::sqlite

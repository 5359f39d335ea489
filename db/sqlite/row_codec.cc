#include "db/sqlite/row_codec.h"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "proto/base/strings.h"
#include "proto/model/tuning/digest.h"

namespace convtune::db::sqlite {
namespace {

constexpr size_t kMostSpareBytes = 1 << 20;

// The bytes of the thread's last row: one after another needs memory once.
thread_local std::string spare_bytes;

}  // namespace

std::string Table::InsertSql() const {
  std::string names;
  std::string placeholders;
  for (const std::string_view column : columns) {
    AppendTo(&names, column, ", ");
    placeholders.append("?, ");
  }
  return Concat("INSERT INTO ", name, " (", names, "checksum) VALUES (", placeholders, "?)");
}

std::string Table::UpsertSql(std::string_view key) const {
  std::string sql = Concat(InsertSql(), " ON CONFLICT (", key, ") DO UPDATE SET ");
  // Not the key, which is equal anyway: SQLite would look for every row of other
  // tables that refers to it, and a release has a million of them.
  std::vector<std::string_view> key_columns;
  for (const std::string_view column : Split(key, ',')) key_columns.push_back(Strip(column));
  for (const std::string_view column : columns) {
    if (std::find(key_columns.begin(), key_columns.end(), column) != key_columns.end()) continue;
    AppendTo(&sql, column, " = excluded.", column, ", ");
  }
  return sql + "checksum = excluded.checksum";
}

std::string Table::SelectList(std::string_view alias) const {
  std::string list;
  for (const std::string_view column : columns) {
    AppendTo(&list, alias, ".", column, ", ");
  }
  AppendTo(&list, alias, ".checksum");
  return list;
}

RowEncoding::RowEncoding(std::string_view table) : bytes_(std::move(spare_bytes)) {
  bytes_.clear();
  Text(table);
}

RowEncoding::~RowEncoding() {
  if (bytes_.capacity() <= kMostSpareBytes) spare_bytes = std::move(bytes_);
}

void RowEncoding::Fixed(char tag, uint64_t bits) {
  std::array<char, 9> bytes;
  bytes[0] = tag;
  for (size_t i = 0; i < 8; ++i) bytes[1 + i] = static_cast<char>(bits >> (8 * i));
  bytes_.append(bytes.data(), bytes.size());
}

void RowEncoding::Bytes(char tag, std::string_view value) {
  Fixed(tag, value.size());
  bytes_.append(value);
}

void RowEncoding::Int(int64_t value) { Fixed('i', static_cast<uint64_t>(value)); }

void RowEncoding::Real(double value) { Fixed('r', std::bit_cast<uint64_t>(value + 0.0)); }

void RowEncoding::Text(std::string_view value) { Bytes('t', value); }

void RowEncoding::Blob(std::string_view value) { Bytes('b', value); }

void RowEncoding::Null() { bytes_.push_back('n'); }

void RowEncoding::Column(const Statement& statement, int column) {
  switch (statement.Type(column)) {
    case ColumnType::kInteger:
      Int(statement.Int(column));
      break;
    case ColumnType::kReal:
      Real(statement.Real(column));
      break;
    case ColumnType::kText:
      Text(statement.Text(column));
      break;
    case ColumnType::kBlob:
      Blob(statement.Blob(column));
      break;
    case ColumnType::kNull:
      Null();
      break;
  }
}

int64_t RowEncoding::Checksum() const { return static_cast<int64_t>(Checksum64(bytes_)); }

RowWriter::RowWriter(const Table& table, Statement& statement)
    : statement_(statement), encoding_(table.name) {}

RowWriter& RowWriter::Int(int64_t value) {
  statement_.BindInt(++index_, value);
  encoding_.Int(value);
  return *this;
}

RowWriter& RowWriter::Real(double value) {
  statement_.BindReal(++index_, value);
  encoding_.Real(value);
  return *this;
}

RowWriter& RowWriter::Bytes(bool is_text, std::string_view value) {
  if (is_text) {
    encoding_.Text(value);
  } else {
    encoding_.Blob(value);
  }
  pieces_.at(piece_count_++) = {++index_, is_text, encoding_.size(), value.size()};
  return *this;
}

RowWriter& RowWriter::Text(std::string_view value) { return Bytes(true, value); }

RowWriter& RowWriter::Blob(std::string_view value) { return Bytes(false, value); }

RowWriter& RowWriter::Null() {
  statement_.BindNull(++index_);
  encoding_.Null();
  return *this;
}

RowWriter& RowWriter::MaybeTime(std::optional<absl::Time> value) {
  return value.has_value() ? Int(absl::ToUnixMicros(*value)) : Null();
}

absl::Status RowWriter::Insert() {
  for (size_t i = 0; i < piece_count_; ++i) {
    const Piece& piece = pieces_[i];
    const std::string_view value = encoding_.Piece(piece.end, piece.size);
    if (piece.is_text) {
      statement_.BindLastingText(piece.index, value);
    } else {
      statement_.BindLastingBlob(piece.index, value);
    }
  }
  statement_.BindInt(++index_, encoding_.Checksum());
  return statement_.Run();
}

RowReader::RowReader(const Table& table, const Statement& statement, int first)
    : table_(table), statement_(statement), first_(first), next_(first) {}

std::optional<absl::Time> RowReader::MaybeTime() {
  const int column = next_++;
  if (statement_.Type(column) == ColumnType::kNull) return std::nullopt;
  return absl::FromUnixMicros(statement_.Int(column));
}

bool RowReader::ChecksumMatches() const {
  RowEncoding encoding(table_.name);
  const int end = first_ + static_cast<int>(table_.columns.size());
  for (int column = first_; column < end; ++column) encoding.Column(statement_, column);
  return statement_.Type(end) == ColumnType::kInteger && statement_.Int(end) == encoding.Checksum();
}

}  // namespace convtune::db::sqlite

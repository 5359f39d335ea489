#include "db/sqlite/row_table.h"

#include <algorithm>
#include <array>
#include <bit>

#include "proto/model/tuning/digest.h"

namespace convtune::db::sqlite {
namespace {

constexpr size_t kMostSpareBytes = 1 << 20;

// The bytes of the thread's last row: one after another needs memory once.
thread_local std::string spare_bytes;

}  // namespace

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

void RowEncoding::Real(double value) { Fixed('r', std::bit_cast<uint64_t>(value + 0.0)); }

void RowEncoding::Column(const Statement& statement, int column) {
  switch (statement.Type(column)) {
    case ColumnType::kInteger:
      return Int(statement.Int(column));
    case ColumnType::kReal:
      return Real(statement.Real(column));
    case ColumnType::kText:
      return Text(statement.Text(column));
    case ColumnType::kBlob:
      return Blob(statement.Blob(column));
    case ColumnType::kNull:
      return Null();
  }
}

int64_t RowEncoding::Checksum() const { return static_cast<int64_t>(Checksum64(bytes_)); }

Table::Table(std::string_view table, std::string_view key, std::vector<std::string_view> names)
    : name(table), columns(std::move(names)) {
  std::vector<std::string_view> key_columns = Split(key, ',');
  for (std::string_view& column : key_columns) column = Strip(column);
  std::string inserted, placeholders, changes;
  for (const std::string_view column : columns) {
    AppendTo(&inserted, column, ", ");
    AppendTo(&placeholders, "?, ");
    AppendTo(&list, name, ".", column, ", ");
    // Not the key, which is equal anyway: SQLite would look for every row of other
    // tables that refers to it, and a release has a million of them.
    if (std::find(key_columns.begin(), key_columns.end(), column) != key_columns.end()) continue;
    AppendTo(&changes, column, " = excluded.", column, ", ");
  }
  AppendTo(&list, name, ".checksum");
  insert = Concat("INSERT INTO ", name, " (", inserted, "checksum) VALUES (", placeholders, "?)");
  put = Concat(insert, " ON CONFLICT (", key, ") DO UPDATE SET ", changes,
               "checksum = excluded.checksum");
}

bool ChecksumMatches(const Table& table, const Statement& statement, int first) {
  RowEncoding encoding(table.name);
  const int end = first + table.width() - 1;
  for (int column = first; column < end; ++column) encoding.Column(statement, column);
  return statement.Type(end) == ColumnType::kInteger && statement.Int(end) == encoding.Checksum();
}

void FieldWriter::Int(int64_t value) {
  statement_.BindInt(++index_, value);
  encoding_.Int(value);
}

void FieldWriter::Put(double value) {
  statement_.BindReal(++index_, value);
  encoding_.Real(value);
}

void FieldWriter::Put(const std::string& value) {
  statement_.BindLastingText(++index_, value);
  encoding_.Text(value);
}

void FieldWriter::Put(const std::optional<absl::Time>& value) {
  if (value.has_value()) return Put(*value);
  statement_.BindNull(++index_);
  encoding_.Null();
}

void FieldWriter::PutCopy(const std::string& value) {
  statement_.BindText(++index_, value);
  encoding_.Text(value);
}

void FieldWriter::Blob(std::string_view /*name*/, const std::string& value) {
  statement_.BindLastingBlob(++index_, value);
  encoding_.Blob(value);
}

absl::Status FieldWriter::Run() {
  statement_.BindInt(++index_, encoding_.Checksum());
  return statement_.Run();
}

void FieldReader::Get(std::string_view /*name*/, std::optional<absl::Time>* value) {
  const int column = next_++;
  if (statement_.Type(column) == ColumnType::kNull) {
    *value = std::nullopt;
  } else {
    *value = absl::FromUnixMicros(statement_.Int(column));
  }
}

void FieldReader::Get(std::string_view name, CandidateId* value) {
  Take(name, ParseCandidateId(statement_.Text(next_++)), value);
}

void FieldReader::Get(std::string_view name, std::optional<CandidateId>* value) {
  if (statement_.Text(next_).empty()) {
    ++next_;
    *value = std::nullopt;
  } else {
    Get(name, &value->emplace());
  }
}

void FieldReader::Get(std::string_view name, CandidatePattern* value) {
  Take(name, CandidatePattern::Parse(statement_.Text(next_++)), value);
}

void FieldReader::Get(std::string_view name, CudnnRange* value) {
  Take(name, CudnnRange::Parse(statement_.Text(next_++)), value);
}

void FieldReader::Refuse(std::string_view name, const std::string& why) {
  if (problem_.empty()) problem_ = Concat(name, ": ", why);
}

}  // namespace convtune::db::sqlite

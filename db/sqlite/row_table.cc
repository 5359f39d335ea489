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
  Add(table);
}

RowEncoding::~RowEncoding() {
  if (bytes_.capacity() <= kMostSpareBytes) spare_bytes = std::move(bytes_);
}

void RowEncoding::Add(const Value& value) {
  // A tag, then 8 bytes, then those whose number they are.
  const auto add = [this](char tag, uint64_t bits, std::string_view bytes = {}) {
    std::array<char, 9> head;
    head[0] = tag;
    for (size_t i = 0; i < 8; ++i) head[1 + i] = static_cast<char>(bits >> (8 * i));
    bytes_.append(head.data(), head.size());
    bytes_.append(bytes);
  };
  if (const auto* number = std::get_if<int64_t>(&value)) {
    add('i', static_cast<uint64_t>(*number));
  } else if (const auto* real = std::get_if<double>(&value)) {
    add('r', std::bit_cast<uint64_t>(*real + 0.0));
  } else if (const auto* text = std::get_if<std::string_view>(&value)) {
    add('t', text->size(), *text);
  } else if (const auto* blob = std::get_if<Blob>(&value)) {
    add('b', blob->bytes.size(), blob->bytes);
  } else {
    bytes_.push_back('n');
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
  for (int column = first; column < end; ++column) encoding.Add(statement.At(column));
  return statement.At(end) == Value(encoding.Checksum());
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

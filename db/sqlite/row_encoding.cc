#include "db/sqlite/row_encoding.h"

#include <array>
#include <bit>
#include <utility>

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

}  // namespace convtune::db::sqlite

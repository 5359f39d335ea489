// Rows with checksums. A row's checksum is Checksum64 over the table's name
// and every other column, each with a tag for its type and, where the type
// does not give it, a length, so that no two rows encode alike.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "db/sqlite/statement.h"

namespace convtune::db::sqlite {

// A table whose last column, not listed here, is `checksum`.
struct Table {
  std::string_view name;
  std::vector<std::string_view> columns;

  // "INSERT INTO name (a, b, checksum) VALUES (?, ?, ?)".
  std::string InsertSql() const;
  // The same, replacing what a row with equal values in `key` had.
  std::string UpsertSql(std::string_view key) const;
  // "alias.a, alias.b, alias.checksum": what RowReader reads.
  std::string SelectList(std::string_view alias) const;
};

// Encodes values for the checksum, in column order. Takes over the memory of the
// thread's last one.
class RowEncoding {
 public:
  explicit RowEncoding(std::string_view table);
  ~RowEncoding();
  RowEncoding(const RowEncoding&) = delete;
  RowEncoding& operator=(const RowEncoding&) = delete;
  void Int(int64_t value);
  // -0.0 reads back as 0.0 and is encoded so.
  void Real(double value);
  void Text(std::string_view value);
  void Blob(std::string_view value);
  void Null();
  // The value that `statement` has there.
  void Column(const Statement& statement, int column);
  // As SQLite's signed integer.
  int64_t Checksum() const;
  // Of what was encoded last, if that was text or a blob: it ends the bytes.
  size_t size() const { return bytes_.size(); }
  std::string_view Piece(size_t end, size_t size) const {
    return std::string_view(bytes_).substr(end - size, size);
  }

 private:
  void Fixed(char tag, uint64_t bits);
  void Bytes(char tag, std::string_view value);
  std::string bytes_;
};

// Binds the values of one row, in column order, to Table::InsertSql()'s
// statement. Text and blobs are copied once, into the encoding, and bound from
// there. Not thread-safe; must not outlive either argument.
class RowWriter {
 public:
  RowWriter(const Table& table, Statement& statement);
  RowWriter& Int(int64_t value);
  RowWriter& Real(double value);  // no NaN
  RowWriter& Text(std::string_view value);
  RowWriter& Blob(std::string_view value);
  RowWriter& Null();
  RowWriter& MaybeTime(std::optional<absl::Time> value);  // in microseconds, or NULL
  // Binds the checksum and runs the statement.
  absl::Status Insert();

 private:
  // A value in the encoding, which may still move.
  struct Piece {
    int index;
    bool is_text;
    size_t end;
    size_t size;
  };
  static constexpr size_t kMostPieces = 16;

  RowWriter& Bytes(bool is_text, std::string_view value);

  Statement& statement_;
  RowEncoding encoding_;
  std::array<Piece, kMostPieces> pieces_;
  size_t piece_count_ = 0;
  int index_ = 0;
};

// Reads the row that `statement` stands on, from column `first`, in the order
// of Table::SelectList(). Not thread-safe; must not outlive the row.
class RowReader {
 public:
  RowReader(const Table& table, const Statement& statement, int first = 0);
  bool ChecksumMatches() const;
  int64_t Int() { return statement_.Int(next_++); }
  double Real() { return statement_.Real(next_++); }
  std::string Text() { return std::string(statement_.Text(next_++)); }
  std::string_view Blob() { return statement_.Blob(next_++); }
  std::optional<absl::Time> MaybeTime();
  void Skip() { ++next_; }

 private:
  const Table& table_;
  const Statement& statement_;
  const int first_;
  int next_;
};

}  // namespace convtune::db::sqlite

// A RowEncoding is what a row's checksum is of: the table's name and every other column,
// each with a tag for its type and, where the type does not give it, a length, so that no
// two rows encode alike.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "db/sqlite/statement.h"

namespace convtune::db::sqlite {

// Values are added in column order. Takes over the memory of the thread's last one. Not
// thread-safe.
class RowEncoding {
 public:
  explicit RowEncoding(std::string_view table);
  ~RowEncoding();
  RowEncoding(const RowEncoding&) = delete;
  RowEncoding& operator=(const RowEncoding&) = delete;
  void Int(int64_t value) { Fixed('i', static_cast<uint64_t>(value)); }
  // -0.0 reads back as 0.0 and is encoded so.
  void Real(double value);
  void Text(std::string_view value) { Bytes('t', value); }
  void Blob(std::string_view value) { Bytes('b', value); }
  void Null() { bytes_.push_back('n'); }
  // The value that `statement` has there.
  void Column(const Statement& statement, int column);
  // As SQLite's signed integer.
  int64_t Checksum() const;

 private:
  void Fixed(char tag, uint64_t bits);
  void Bytes(char tag, std::string_view value);
  std::string bytes_;
};

}  // namespace convtune::db::sqlite

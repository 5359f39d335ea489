// Numbers and texts as bytes, for what is packed into one value of a row.
// Integers are varints of seven bits a byte, the lowest first; signed ones in
// zigzag (0, -1, 1, -2, ...). Reals are the bits of an IEEE 754 binary64,
// little-endian. A text is its length and its bytes.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace convtune::db::store {

class PackedWriter {
 public:
  explicit PackedWriter(size_t expected_bytes) { bytes_.reserve(expected_bytes); }

  void Unsigned(uint64_t value) {
    while (value >= 0x80) {
      bytes_.push_back(static_cast<char>(value | 0x80));
      value >>= 7;
    }
    bytes_.push_back(static_cast<char>(value));
  }
  void Signed(int64_t value) {
    Unsigned((static_cast<uint64_t>(value) << 1) ^ static_cast<uint64_t>(value >> 63));
  }
  void Real(double value) {
    const auto bits = std::bit_cast<uint64_t>(value);
    for (int shift = 0; shift < 64; shift += 8) bytes_.push_back(static_cast<char>(bits >> shift));
  }
  void Text(std::string_view value) {
    Unsigned(value.size());
    bytes_.append(value);
  }
  // Their number, then binary32, little-endian.
  void Floats(const std::vector<float>& values) {
    Unsigned(values.size());
    const size_t begin = bytes_.size();
    bytes_.resize(begin + 4 * values.size());
    char* out = bytes_.data() + begin;
    for (const float value : values) {
      const auto bits = std::bit_cast<uint32_t>(value);
      for (int shift = 0; shift < 32; shift += 8) *out++ = static_cast<char>(bits >> shift);
    }
  }
  std::string Take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

// Reads what PackedWriter wrote. After a value that is not there, or is too
// large, ok() is false and every value is 0. Must not outlive the bytes.
class PackedReader {
 public:
  explicit PackedReader(std::string_view bytes) : rest_(bytes) {}

  bool ok() const { return ok_; }
  // Everything was read, and was as it should be.
  bool done() const { return ok_ && rest_.empty(); }
  size_t left() const { return rest_.size(); }

  uint64_t Unsigned() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (rest_.empty()) break;
      const auto byte = static_cast<unsigned char>(rest_.front());
      rest_.remove_prefix(1);
      if (shift == 63 && byte > 1) break;
      value |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    Fail();
    return 0;
  }
  int64_t Signed() {
    const uint64_t value = Unsigned();
    return static_cast<int64_t>((value >> 1) ^ (~(value & 1) + 1));
  }
  // One that an int holds.
  int Int() { return Narrow(Signed()); }
  // From `first` to `last`.
  template <typename E>
  E Enum(E first, E last) {
    const uint64_t value = Unsigned();
    if (value < static_cast<uint64_t>(first) || value > static_cast<uint64_t>(last)) Fail();
    return static_cast<E>(ok_ ? value : static_cast<uint64_t>(first));
  }
  // Of things that take `least_bytes` each at least, so that few bytes cannot ask
  // for much memory.
  size_t Count(size_t least_bytes) {
    const uint64_t count = Unsigned();
    if (count > rest_.size() / least_bytes) Fail();
    return ok_ ? static_cast<size_t>(count) : 0;
  }
  double Real() {
    const std::string_view bytes = Take(8);
    uint64_t bits = 0;
    for (size_t i = 0; i < bytes.size(); ++i) {
      bits |= static_cast<uint64_t>(static_cast<unsigned char>(bytes[i])) << (8 * i);
    }
    return std::bit_cast<double>(bits);
  }
  std::string_view Text() { return Take(Count(1)); }
  std::vector<float> Floats() {
    const std::string_view bytes = Take(4 * Count(4));
    std::vector<float> values(bytes.size() / 4);
    for (size_t i = 0; i < values.size(); ++i) {
      uint32_t bits = 0;
      for (size_t byte = 0; byte < 4; ++byte) {
        bits |= static_cast<uint32_t>(static_cast<unsigned char>(bytes[4 * i + byte]))
                << (8 * byte);
      }
      values[i] = std::bit_cast<float>(bits);
    }
    return values;
  }

 private:
  void Fail() {
    ok_ = false;
    rest_ = {};
  }
  int Narrow(int64_t value) {
    if (value != static_cast<int>(value)) {
      Fail();
      return 0;
    }
    return static_cast<int>(value);
  }
  std::string_view Take(size_t bytes) {
    if (bytes > rest_.size()) {
      Fail();
      return {};
    }
    const std::string_view taken = rest_.substr(0, bytes);
    rest_.remove_prefix(bytes);
    return taken;
  }

  std::string_view rest_;
  bool ok_ = true;
};

}  // namespace convtune::db::store

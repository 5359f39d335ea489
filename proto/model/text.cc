#include "proto/model/text.h"

#include <algorithm>
#include <charconv>

#include "absl/strings/escaping.h"
#include "proto/base/strings.h"

namespace convtune {

size_t Utf8SequenceLength(std::string_view text) {
  if (text.empty()) {
    return 0;
  }
  const auto lead = static_cast<unsigned char>(text[0]);
  size_t length = 0;
  unsigned low = 0x80;
  unsigned high = 0xBF;
  if (lead < 0x80) {
    return 1;
  }
  if (lead >= 0xC2 && lead <= 0xDF) {
    length = 2;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    length = 3;
    low = lead == 0xE0 ? 0xA0 : low;
    high = lead == 0xED ? 0x9F : high;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    length = 4;
    low = lead == 0xF0 ? 0x90 : low;
    high = lead == 0xF4 ? 0x8F : high;
  }
  if (length == 0 || text.size() < length) {
    return 0;
  }
  for (size_t i = 1; i < length; ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte < (i == 1 ? low : 0x80) || byte > (i == 1 ? high : 0xBF)) {
      return 0;
    }
  }
  return length;
}

bool IsValidUtf8(std::string_view text) {
  while (!text.empty()) {
    const size_t length = Utf8SequenceLength(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

std::string_view CutUtf8(std::string_view text, size_t most) {
  size_t end = std::min(text.size(), most);
  while (end > 0 && end < text.size() && (text[end] & 0xC0) == 0x80) --end;
  return text.substr(0, end);
}

bool HasControlCharacter(std::string_view text) {
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte < 0x20 && c != '\t') || byte == 0x7F) return true;
  }
  return false;
}

std::string CheckNodeName(std::string_view name) {
  constexpr size_t kMost = 256;  // as a bundle's texts
  if (!name.empty() && name.size() <= kMost && IsValidUtf8(name) && !HasControlCharacter(name) &&
      name.find('\t') == std::string_view::npos && name.front() != ' ' && name.back() != ' ') {
    return "";
  }
  return Concat("must be 1 to ", kMost,
                " bytes of UTF-8 without control characters and without a space at an end");
}

std::string Excerpt(std::string_view text) {
  constexpr size_t kLength = 40;
  const std::string start(CutUtf8(text, kLength));
  std::string out = IsValidUtf8(start) ? absl::Utf8SafeCHexEscape(start) : absl::CHexEscape(start);
  if (start.size() < text.size()) out += "...";
  return out;
}

std::string Quote(std::string_view text) { return Concat("\"", Excerpt(text), "\""); }

absl::Status ReadInt64(std::string_view text, int64_t* value) {
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, *value);
  const bool is_number = error != std::errc::invalid_argument && rest == end;
  if (is_number && error == std::errc()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      Concat(Quote(text), is_number ? " does not fit into 64 bits" : " is not a whole number"));
}

std::vector<int> VersionNumbers(std::string_view version) {
  std::vector<int> numbers;
  for (const std::string_view part : Split(version, '.')) {
    int number = 0;
    if (std::from_chars(part.data(), part.data() + part.size(), number).ec != std::errc()) break;
    numbers.push_back(number);
  }
  return numbers;
}

}  // namespace convtune

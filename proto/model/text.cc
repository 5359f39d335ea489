#include "proto/model/text.h"

#include <algorithm>
#include <charconv>

#include "absl/strings/escaping.h"
#include "proto/base/strings.h"

namespace convtune {

bool IsValidUtf8(std::string_view text) {
  size_t i = 0;
  while (i < text.size()) {
    const auto lead = static_cast<unsigned char>(text[i]);
    if (lead < 0x80) {
      ++i;
      continue;
    }
    size_t length = 0;
    uint32_t code = 0;
    uint32_t smallest = 0;
    if ((lead & 0xE0) == 0xC0) {
      length = 2, code = lead & 0x1F, smallest = 0x80;
    } else if ((lead & 0xF0) == 0xE0) {
      length = 3, code = lead & 0x0F, smallest = 0x800;
    } else if ((lead & 0xF8) == 0xF0) {
      length = 4, code = lead & 0x07, smallest = 0x10000;
    } else {
      return false;
    }
    if (i + length > text.size()) return false;
    for (size_t k = 1; k < length; ++k) {
      const auto next = static_cast<unsigned char>(text[i + k]);
      if ((next & 0xC0) != 0x80) return false;
      code = (code << 6) | (next & 0x3F);
    }
    if (code < smallest || code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) return false;
    i += length;
  }
  return true;
}

bool HasControlCharacter(std::string_view text) {
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte < 0x20 && c != '\t') || byte == 0x7F) return true;
  }
  return false;
}

std::string Excerpt(std::string_view text) {
  constexpr size_t kLength = 40;
  size_t length = std::min(text.size(), kLength);
  // Not in the middle of a character.
  while (length > 0 && length < text.size() && (text[length] & 0xC0) == 0x80) --length;
  const std::string start(text.substr(0, length));
  std::string out = IsValidUtf8(start) ? absl::Utf8SafeCHexEscape(start) : absl::CHexEscape(start);
  if (length < text.size()) out += "...";
  return out;
}

std::string Quote(std::string_view text) { return Concat("\"", Excerpt(text), "\""); }

NumberError ReadInt64(std::string_view text, int64_t* value) {
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, *value);
  if (error == std::errc::invalid_argument || rest != end) return NumberError::kNotANumber;
  return error == std::errc::result_out_of_range ? NumberError::kOverflow : NumberError::kNone;
}

std::string NumberRule(NumberError error, std::string_view text) {
  return Concat(Quote(text), error == NumberError::kOverflow ? " does not fit into 64 bits"
                                                             : " is not a whole number");
}

}  // namespace convtune

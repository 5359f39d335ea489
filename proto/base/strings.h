// String helpers over std::string_view. Where a distribution builds absl for
// C++14, absl::string_view is a type of its own and absl's functions do not
// take std::string_view.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace convtune {
namespace strings_internal {

template <typename T>
decltype(auto) CatArg(const T& value) {
  if constexpr (std::is_same_v<T, std::string_view>) {
    return absl::string_view(value.data(), value.size());
  } else {
    return (value);
  }
}

}  // namespace strings_internal

// absl::StrCat that also takes std::string_view.
template <typename... Args>
std::string Concat(const Args&... args) {
  return absl::StrCat(strings_internal::CatArg(args)...);
}

// absl::StrAppend that also takes std::string_view.
template <typename... Args>
void AppendTo(std::string* out, const Args&... args) {
  absl::StrAppend(out, strings_internal::CatArg(args)...);
}

// The pieces between the separators; one piece if there is no separator. They
// point into `text`.
inline std::vector<std::string_view> Split(std::string_view text, char separator) {
  std::vector<std::string_view> pieces;
  pieces.reserve(1 + static_cast<size_t>(std::count(text.begin(), text.end(), separator)));
  size_t begin = 0;
  for (size_t end = text.find(separator); end != std::string_view::npos;
       end = text.find(separator, begin)) {
    pieces.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  pieces.push_back(text.substr(begin));
  return pieces;
}

// Without spaces, tabs and line ends at either end.
inline std::string_view Strip(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n\v\f";
  const size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

// Removes `prefix` from the front of `text` if it is there.
inline bool ConsumeFront(std::string_view* text, std::string_view prefix) {
  if (!text->starts_with(prefix)) return false;
  text->remove_prefix(prefix.size());
  return true;
}

// ASCII letters in lower case; the locale does not matter.
inline std::string LowerCase(std::string_view text) {
  return absl::AsciiStrToLower(absl::string_view(text.data(), text.size()));
}

// The low `bytes` bytes of a number, the lowest first.
inline void AppendLittleEndian(uint64_t value, int bytes, std::string* out) {
  for (int i = 0; i < bytes; ++i) out->push_back(static_cast<char>(value >> (8 * i)));
}

inline uint64_t ReadLittleEndian(const char* data, int bytes) {
  uint64_t value = 0;
  for (int i = bytes; i-- > 0;) value = value << 8 | static_cast<unsigned char>(data[i]);
  return value;
}

}  // namespace convtune

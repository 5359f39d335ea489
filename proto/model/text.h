// Small helpers for reading text that a stranger wrote.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace convtune {

// Bytes of the UTF-8 sequence that `text` starts with; 0 if it starts with
// none. As RFC 3629 has it: no overlong forms, no surrogates, nothing above
// U+10FFFF.
size_t Utf8SequenceLength(std::string_view text);

// True if the text is such sequences alone.
bool IsValidUtf8(std::string_view text);

// As much of the text from its beginning as fits into `most` bytes, without a part of a
// UTF-8 character at the end.
std::string_view CutUtf8(std::string_view text, size_t most);

// True if there is a control character other than tab.
bool HasControlCharacter(std::string_view text);

// The rule that the name of a node breaks, "must be ..."; empty: it breaks none.
std::string CheckNodeName(std::string_view name);

// The text with everything but printable ASCII escaped, cut after 40 bytes:
// safe in logs, messages and protobuf strings.
std::string Excerpt(std::string_view text);

// Excerpt() in double quotes.
std::string Quote(std::string_view text);

// Reads a plain decimal: an optional '-' and digits, nothing else. INVALID_ARGUMENT with the rule
// alone: "\"1e3\" is not a whole number".
absl::Status ReadInt64(std::string_view text, int64_t* value);

// The numbers of a version such as "580.65.06"; stops at the first part that does not begin with a
// number.
std::vector<int> VersionNumbers(std::string_view version);

}  // namespace convtune

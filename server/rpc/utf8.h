// UTF-8 as RFC 3629 has it: no overlong forms, no surrogates, nothing above
// U+10FFFF.
#pragma once

#include <cstddef>
#include <string_view>

namespace convtune {

// Bytes of the sequence that `text` starts with; 0 if it starts with none.
size_t Utf8SequenceLength(std::string_view text);

bool IsUtf8(std::string_view text);

}  // namespace convtune

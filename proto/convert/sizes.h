// Sizes that a problem's text leaves open, "[224..512/32]": a text with some
// stands for one problem for each of them. See proto/convert/README.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace convtune {

// Problems that one line of a list stands for, and sizes of one bracket, at most: as many as a
// request may have problems.
inline constexpr size_t kMaxExpansions = 10'000;

// Reads "8", "1,8,32", "224..512/32" and mixtures. A range goes from its first
// size in steps (1 if none is named) to the last one that is not above its end.
// INVALID_ARGUMENT with the rule that is broken, for the caller to name the
// field.
absl::StatusOr<std::vector<int64_t>> ParseSizes(std::string_view text);

// The texts that `text` stands for, the last bracket's sizes changing first;
// `text` alone if it has no bracket. "[=]" is the size of the bracket before it.
// INVALID_ARGUMENT with field and rule; what stands outside of brackets is not
// looked at.
absl::StatusOr<std::vector<std::string>> ExpandSizes(std::string_view text);

}  // namespace convtune

// AsFloat rounds numbers to those that a column of type `real` can hold.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

namespace convtune::db::fleet {

// Converts to the range of a `real` of PostgreSQL, which refuses values outside it: a
// value below the range becomes 0, a value above it the largest.
inline double AsFloat(double value) {
  constexpr double kLeast = std::numeric_limits<float>::min();
  constexpr double kMost = std::numeric_limits<float>::max();
  if (std::abs(value) < kLeast) return 0;
  return std::clamp(value, -kMost, kMost);
}

}  // namespace convtune::db::fleet

// AsFloat rounds numbers to those that a column of type `real` can hold.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

namespace convtune::db::fleet {

// What is smaller becomes 0, what is larger the largest: PostgreSQL refuses both.
inline double AsFloat(double value) {
  constexpr double kLeast = std::numeric_limits<float>::min();
  constexpr double kMost = std::numeric_limits<float>::max();
  if (std::abs(value) < kLeast) return 0;
  return std::clamp(value, -kMost, kMost);
}

}  // namespace convtune::db::fleet

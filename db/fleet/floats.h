// AsFloat rounds numbers to those that a column of type `real` can hold.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace convtune::db::fleet {

// What is smaller becomes 0, what is larger the largest: PostgreSQL refuses both.
inline double AsFloat(double value) {
  constexpr double kLeast = std::numeric_limits<float>::min();
  constexpr double kMost = std::numeric_limits<float>::max();
  if (std::abs(value) < kLeast) return 0;
  return std::clamp(value, -kMost, kMost);
}

inline std::vector<double> AsFloats(std::vector<double> values) {
  for (double& value : values) value = AsFloat(value);
  return values;
}

}  // namespace convtune::db::fleet

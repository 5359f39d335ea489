// Median is the middle of numbers, for reports, fleets and races.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace convtune {

// Median (mean of the two in the middle for an even number); 0 of nothing. No value is NaN.
inline double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*std::max_element(values.begin(), middle) + *middle) / 2;
}

}  // namespace convtune

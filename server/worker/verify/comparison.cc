#include "server/worker/verify/comparison.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "server/worker/verify/tensor_data.h"

namespace convtune::worker::verify {
namespace {

bool IsInteger(DataType type) { return type == DataType::kI8 || type == DataType::kI32; }

// A sum may be this much larger where nobody looked.
constexpr double kRoom = 4.0;

constexpr int kFewElements = 64;

}  // namespace

Comparison CompareElements(const std::vector<ReferenceElement>& reference, DataType type,
                           std::string_view bytes) {
  Comparison result;
  const double largest_of_type = LargestOf(type);
  double largest = 0;
  double magnitude = 0;
  double difference = 0;
  double furthest = 0;
  for (size_t i = 0; i < reference.size(); ++i) {
    double expected = reference[i].value;
    furthest = std::max(furthest, std::abs(expected));
    if (IsInteger(type)) {
      expected = std::clamp(expected, -largest_of_type - 1, largest_of_type);
    } else if (std::abs(expected) * 2 > largest_of_type) {
      continue;
    }
    const double actual = DecodeElement(type, bytes.data() + i * static_cast<size_t>(SizeOf(type)));
    ++result.elements;
    largest = std::max(largest, std::abs(expected));
    magnitude = std::max(magnitude, reference[i].magnitude);
    // Not std::max, which may drop a NaN.
    const double far = std::isfinite(actual) ? std::abs(actual - expected)
                                             : std::numeric_limits<double>::infinity();
    if (far > difference) difference = far;
  }
  const bool compared = result.elements > 0;
  result.must_be_finite = compared && !IsInteger(type) && furthest * kRoom <= largest_of_type;
  if (!compared) return result;
  if (largest > 0) {
    result.error = difference / largest;
    result.magnitude = magnitude / largest;
  } else {
    // All of the reference is 0, as where a filter sees padding alone.
    result.error = difference;
    result.magnitude = magnitude;
  }
  return result;
}

std::string Disagreement(DataType type, const Comparison& first, const Comparison& second) {
  if (first.nonfinite != second.nonfinite) {
    return absl::StrCat(second.nonfinite, " elements are not finite, and ", first.nonfinite,
                        " were");
  }
  if (first.error.has_value() != second.error.has_value()) {
    return "no element can be compared any more";
  }
  if (!first.error.has_value()) return "";
  const double factor = first.elements < kFewElements ? 8 : 2;
  const double allowed =
      std::max({factor * *first.error, 2 * UnitRoundoff(type), first.magnitude * 0x1p-20, 1e-6});
  if (*second.error <= allowed) return "";
  return absl::StrCat("its error is ", *second.error, ", and was ", *first.error);
}

}  // namespace convtune::worker::verify

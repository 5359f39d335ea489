#include "server/worker/verify/output_check.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "server/worker/cudnn/cudnn_status.h"
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

absl::StatusOr<OutputCheck> OutputCheck::Create(const ConvProblem& problem,
                                                std::vector<ReferenceElement> reference,
                                                int64_t output_elements, device::Kernels* kernels,
                                                cudaStream_t stream) {
  OutputCheck check(problem.output_type(), kernels, stream);
  check.reference_ = std::move(reference);
  std::vector<uint64_t> offsets;
  for (const ReferenceElement& element : check.reference_) {
    offsets.push_back(static_cast<uint64_t>(element.offset * SizeOf(check.type_)));
  }
  if (output_elements == ElementCount(OutputDims(problem)) && NonfiniteMask(check.type_) != 0) {
    check.scanned_elements_ = output_elements;
  }
  const auto offset_bytes = static_cast<int64_t>(offsets.size() * sizeof(uint64_t));
  ASSIGN_OR_RETURN(check.offsets_, device::DeviceBuffer::Allocate(offset_bytes));
  ASSIGN_OR_RETURN(check.gathered_, device::DeviceBuffer::Allocate(offset_bytes));
  ASSIGN_OR_RETURN(check.counter_, device::DeviceBuffer::Allocate(sizeof(uint64_t)));
  RETURN_IF_ERROR(device::FillWith(std::string_view(reinterpret_cast<const char*>(offsets.data()),
                                                    static_cast<size_t>(offset_bytes)),
                                   &check.offsets_));
  return check;
}

absl::StatusOr<Comparison> OutputCheck::Look(const void* output) {
  const auto count = static_cast<uint32_t>(reference_.size());
  const auto size = static_cast<uint32_t>(SizeOf(type_));
  uint64_t nonfinite = 0;
  RETURN_IF_ERROR(cudnn::ToStatus(cudaMemsetAsync(counter_.data(), 0, sizeof(nonfinite), stream_),
                                  "clear a counter"));
  if (scanned_elements_ > 0) {
    RETURN_IF_ERROR(kernels_->Scan(output, static_cast<uint64_t>(scanned_elements_), size,
                                   NonfiniteMask(type_), counter_.data()));
  }
  std::string bytes(size_t{count} * size, '\0');
  // None, where one element alone would take too long.
  if (count > 0) {
    RETURN_IF_ERROR(kernels_->Gather(output, offsets_.data(), count, size, gathered_.data()));
    RETURN_IF_ERROR(cudnn::ToStatus(cudaMemcpyAsync(bytes.data(), gathered_.data(), bytes.size(),
                                                    cudaMemcpyDeviceToHost, stream_),
                                    "read the output"));
  }
  RETURN_IF_ERROR(cudnn::ToStatus(cudaMemcpyAsync(&nonfinite, counter_.data(), sizeof(nonfinite),
                                                  cudaMemcpyDeviceToHost, stream_),
                                  "read a counter"));
  RETURN_IF_ERROR(cudnn::ToStatus(cudaStreamSynchronize(stream_), "read the output"));
  Comparison comparison = CompareElements(reference_, type_, bytes);
  if (comparison.must_be_finite) comparison.nonfinite = static_cast<int64_t>(nonfinite);
  return comparison;
}

}  // namespace convtune::worker::verify

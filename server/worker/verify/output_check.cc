#include "server/worker/verify/output_check.h"

#include <string>
#include <string_view>
#include <utility>

#include "proto/base/status_macros.h"
#include "server/worker/cudnn/cudnn_status.h"
#include "server/worker/verify/tensor_data.h"

namespace convtune::worker::verify {
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

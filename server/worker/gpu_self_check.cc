#include "server/worker/gpu_self_check.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/model/problem/conv_problem.h"
#include "server/worker/cudnn/cudnn_status.h"
#include "server/worker/verify/output_check.h"
#include "server/worker/verify/tensor_data.h"

namespace convtune::worker {
namespace {

// The type of a planted fault's output is f16, so that the narrow path of scan and gather
// is the one that is tried.
constexpr DataType kPlantedType = DataType::kF16;
constexpr int64_t kFaultyElement = 77;

}  // namespace

absl::StatusOr<timing::MemorySpan> GpuSelfCheckDevice::Memory() {
  if (!memory_.has_value()) {
    // A flush reads twice the L2 cache.
    ASSIGN_OR_RETURN(device::DeviceBuffer buffer,
                     device::DeviceBuffer::Allocate(verify::CacheBytes(flush_bytes_ / 2)));
    RETURN_IF_ERROR(cudnn::ToStatus(
        cudaMemsetAsync(buffer.data(), 0, static_cast<size_t>(buffer.bytes()), resources_.stream),
        "clear memory"));
    memory_ = std::move(buffer);
  }
  return timing::MemorySpan{memory_->data(), memory_->bytes()};
}

absl::StatusOr<worker::v1::Checked> GpuSelfCheckDevice::RunAfterSpoiltCapture() {
  ASSIGN_OR_RETURN(const ConvProblem problem, ConvProblem::Parse(kKnownProblem));
  ASSIGN_OR_RETURN(const int64_t free_bytes, device::FreeDeviceMemory());
  ASSIGN_OR_RETURN(
      const std::unique_ptr<GpuProblem> known,
      GpuProblem::Create(problem, resources_, free_bytes / 2, verify::InputValues::kSmallIntegers));
  ListingOptions options;
  options.depth = worker::v1::LISTING_FIRST_CONFIGS;
  std::vector<CandidateId> ids;
  ASSIGN_OR_RETURN(const worker::v1::Outcome end, known->List(options, [&ids](const Candidate& c) {
    ids.push_back(c.id);
    return true;
  }));
  // Not every engine can be built for every problem.
  absl::Status refused = absl::OkStatus();
  const auto stock = std::find_if(ids.begin(), ids.end(), [&](const CandidateId& id) {
    const absl::StatusOr<worker::v1::Prepared> prepared = known->Prepare(id);
    refused.Update(prepared.status());
    return prepared.ok() && !prepared->over_memory();
  });
  if (stock == ids.end()) {
    return absl::UnavailableError(
        absl::StrCat("nothing can be run: ", end.message(), refused.message()));
  }
  RETURN_IF_ERROR(known->BeginMeasure({*stock}));
  if (known->SpoilCapture(*stock).ok()) {
    return absl::FailedPreconditionError("a call that a capture forbids did not make it fail");
  }
  return known->Check(*stock);
}

absl::StatusOr<worker::v1::Checked> GpuSelfCheckDevice::Look(verify::PlantedFault fault) {
  ASSIGN_OR_RETURN(const ConvProblem problem, ConvProblem::Parse(kKnownProblem));
  int64_t elements = 1;
  for (const int64_t dim : problem.y_dims()) elements *= dim;
  const std::string right = verify::RandomTensorBytes(
      kPlantedType, elements, verify::TensorContent::kSmallIntegers, /*seed=*/1);
  const std::vector<double> values = verify::DecodeElements(kPlantedType, right);
  std::vector<verify::ReferenceElement> reference;
  for (int64_t i = 0; i < elements; ++i) {
    const double value = values[static_cast<size_t>(i)];
    reference.push_back({i, value, std::abs(value)});
  }
  ASSIGN_OR_RETURN(verify::OutputCheck check,
                   verify::OutputCheck::Create(problem, std::move(reference), elements,
                                               resources_.kernels, resources_.stream));
  ASSIGN_OR_RETURN(const device::GuardedBuffer output,
                   device::GuardedBuffer::Allocate(static_cast<int64_t>(right.size())));
  RETURN_IF_ERROR(output.Prepare(output.bytes(), resources_.stream));
  const auto put = [&](int64_t at, std::string_view bytes) {
    return device::Upload(bytes, static_cast<char*>(output.data()) + at, resources_.stream);
  };
  RETURN_IF_ERROR(put(0, right));
  const int64_t offset = kFaultyElement * SizeOf(kPlantedType);
  switch (fault) {
    case verify::PlantedFault::kNothing:
      break;
    case verify::PlantedFault::kByteBehind:
      RETURN_IF_ERROR(put(output.bytes(), std::string(1, '\0')));
      break;
    case verify::PlantedFault::kNan:
      RETURN_IF_ERROR(put(offset, std::string(2, '\xFF')));
      break;
    case verify::PlantedFault::kWrongElement: {
      const auto value = static_cast<float>(values[static_cast<size_t>(kFaultyElement)]);
      const uint16_t wrong = verify::EncodeSmallFloat(value + 1, 5, 10, true);
      RETURN_IF_ERROR(put(offset, {reinterpret_cast<const char*>(&wrong), sizeof(wrong)}));
      break;
    }
  }
  worker::v1::Checked look;
  ASSIGN_OR_RETURN(const verify::Comparison compared, check.Look(output.data()));
  look.set_nonfinite(compared.nonfinite);
  look.set_error(compared.error.value_or(0));
  ASSIGN_OR_RETURN(*look.mutable_out_of_bounds(), output.Damage(output.bytes(), resources_.stream));
  return look;
}

}  // namespace convtune::worker

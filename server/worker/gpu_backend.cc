#include "server/worker/gpu_backend.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/model/problem/conv_problem.h"
#include "server/worker/cudnn/cudnn_library.h"
#include "server/worker/cudnn/cudnn_status.h"
#include "server/worker/device/device_memory.h"
#include "server/worker/verify/output_check.h"
#include "server/worker/verify/self_check.h"
#include "server/worker/verify/tensor_data.h"

namespace convtune::worker {
namespace {

// Returns the bandwidth of the GPU's memory; 0 if it is not known.
double MemoryBytesPerSecond(int ordinal) {
  const int khz = device::Attribute(cudaDevAttrMemoryClockRate, ordinal).value_or(0);
  const int bits = device::Attribute(cudaDevAttrGlobalMemoryBusWidth, ordinal).value_or(0);
  return 2.0 * khz * 1e3 * bits / 8;  // two transfers in each cycle
}

// The type of a planted fault's output is f16, so that the narrow path of scan and gather
// is the one that is tried.
constexpr DataType kPlantedType = DataType::kF16;
constexpr int64_t kFaultyElement = 77;

// The last steps of the self-check; see SelfCheckDevice.
absl::StatusOr<worker::v1::Checked> RunAfterSpoiltCapture(const GpuResources& resources) {
  ASSIGN_OR_RETURN(const ConvProblem problem, ConvProblem::Parse(verify::kKnownProblem));
  ASSIGN_OR_RETURN(const int64_t free_bytes, device::FreeDeviceMemory());
  ASSIGN_OR_RETURN(
      const std::unique_ptr<GpuProblem> known,
      GpuProblem::Create(problem, resources, free_bytes / 2, verify::InputValues::kSmallIntegers));
  worker::v1::OpenProblem first;
  first.set_listing(worker::v1::LISTING_FIRST_CONFIGS);
  first.set_graph_api(true);
  std::vector<CandidateId> ids;
  const auto take = [&ids](const Candidate& c) {
    ids.push_back(c.id);
    return true;
  };
  ASSIGN_OR_RETURN(const worker::v1::Outcome end,
                   known->List(first, SteadyTime::InfiniteFuture(), take));
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

absl::StatusOr<worker::v1::Checked> LookAt(verify::PlantedFault fault,
                                           const GpuResources& resources) {
  ASSIGN_OR_RETURN(const ConvProblem problem, ConvProblem::Parse(verify::kKnownProblem));
  const int64_t elements = ElementCount(problem.y_dims());
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
                                               resources.kernels, resources.stream));
  ASSIGN_OR_RETURN(const device::GuardedBuffer output,
                   device::GuardedBuffer::Allocate(static_cast<int64_t>(right.size())));
  RETURN_IF_ERROR(output.Prepare(output.bytes(), resources.stream));
  const auto put = [&](int64_t at, std::string_view bytes) {
    return device::Upload(bytes, static_cast<char*>(output.data()) + at, resources.stream);
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
      const uint16_t wrong = verify::EncodeSmallFloat(value + 1, *verify::FormatOf(kPlantedType));
      RETURN_IF_ERROR(put(offset, {reinterpret_cast<const char*>(&wrong), sizeof(wrong)}));
      break;
    }
  }
  worker::v1::Checked look;
  ASSIGN_OR_RETURN(const verify::Comparison compared, check.Look(output.data()));
  look.set_nonfinite(compared.nonfinite);
  look.set_error(compared.error.value_or(0));
  ASSIGN_OR_RETURN(*look.mutable_out_of_bounds(), output.Damage(output.bytes(), resources.stream));
  return look;
}

}  // namespace

absl::StatusOr<std::unique_ptr<GpuBackend>> GpuBackend::Create(int ordinal,
                                                               const OnStart& on_step) {
  cudnn::KeepNvrtcLoaded();
  cudnn::LoadLegacyLibraries();
  ASSIGN_OR_RETURN(device::DeviceInfo info, device::DescribeGpu(ordinal));
  std::unique_ptr<GpuBackend> backend(new GpuBackend(std::move(info)));
  RETURN_IF_ERROR(on_step("create a CUDA context"));
  RETURN_IF_ERROR(cudnn::ToStatus(cudaSetDevice(ordinal), "select the GPU"));
  cudaStream_t stream = nullptr;
  RETURN_IF_ERROR(cudnn::ToStatus(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
                                  "create a stream"));
  backend->stream_.reset(stream);
  RETURN_IF_ERROR(on_step("create a cuDNN handle"));
  cudnnHandle_t handle = nullptr;
  RETURN_IF_ERROR(cudnn::ToStatus(cudnnCreate(&handle), "create a cuDNN handle"));
  backend->handle_.reset(handle);
  RETURN_IF_ERROR(cudnn::ToStatus(cudnnSetStream(handle, stream), "set cuDNN's stream"));
  RETURN_IF_ERROR(on_step("load the worker's kernels"));
  ASSIGN_OR_RETURN(backend->kernels_,
                   device::Kernels::Load(backend->info_.environment.sm_count, stream));
  ASSIGN_OR_RETURN(const int l2_bytes, device::Attribute(cudaDevAttrL2CacheSize, ordinal));
  backend->flush_bytes_ = timing::FlushBytes(l2_bytes);
  backend->memory_bytes_per_second_ = MemoryBytesPerSecond(ordinal);
  ASSIGN_OR_RETURN(backend->timed_stream_,
                   device::CudaStream::Create(stream, backend->kernels_.get(), l2_bytes));
  backend->timer_ = std::make_unique<timing::Timer>(backend->timed_stream_.get());
  backend->nvml_ = device::Nvml::Open(backend->info_.pci_bus_id);
  return backend;
}

ConditionsLook GpuBackend::LookAtConditions() {
  if (nvml_.ok()) return (*nvml_)->Look();
  return {{}, std::string(nvml_.status().message())};
}

absl::StatusOr<SelfCheck> GpuBackend::CheckSelf(
    uint32_t lost_steps, const std::function<absl::Status(uint32_t step)>& on_step) {
  // A step that loses the context ends the process before the next one is named.
  const auto recover_and_name = [&](uint32_t step) {
    Recover();
    return on_step(step);
  };
  verify::SelfCheckDevice card;
  card.stream = timed_stream_.get();
  std::optional<device::DeviceBuffer> memory;
  card.memory = [&]() -> absl::StatusOr<timing::MemorySpan> {
    if (!memory.has_value()) {
      // A flush reads twice the L2 cache.
      ASSIGN_OR_RETURN(device::DeviceBuffer buffer,
                       device::DeviceBuffer::Allocate(verify::CacheBytes(flush_bytes_ / 2)));
      RETURN_IF_ERROR(cudnn::ToStatus(
          cudaMemsetAsync(buffer.data(), 0, static_cast<size_t>(buffer.bytes()), stream_.get()),
          "clear memory"));
      memory = std::move(buffer);
    }
    return timing::MemorySpan{memory->data(), memory->bytes()};
  };
  card.flush_bytes = flush_bytes_;
  card.memory_bytes_per_second = memory_bytes_per_second_;
  card.look = [this](verify::PlantedFault fault) { return LookAt(fault, resources()); };
  card.run_after_spoilt_capture = [this] { return RunAfterSpoiltCapture(resources()); };
  absl::StatusOr<SelfCheck> check = verify::RunSelfCheck(lost_steps, recover_and_name, card);
  Recover();
  return check;
}

void GpuBackend::Apply(const SelfCheck& check) {
  blocking_kernels_ = check.works(SelfCheckBit::kBlockingKernel);
  captures_ = check.works(SelfCheckBit::kCaptures);
}

void GpuBackend::Recover() { cudnn::Recover(stream_.get()); }

absl::StatusOr<std::unique_ptr<BackendProblem>> GpuBackend::Open(const ConvProblem& problem,
                                                                 int64_t memory_budget_bytes) {
  if (nvml_.ok()) (*nvml_)->ReadSettings();
  ASSIGN_OR_RETURN(const int64_t free_bytes, device::FreeDeviceMemory());
  // Code of kernels is loaded as they are first used: that needs room too.
  const int64_t usable = free_bytes - free_bytes / 16;
  // What the timer reads to flush the cache is allocated already, and counts.
  const int64_t budget =
      memory_budget_bytes > 0 ? std::min(memory_budget_bytes - flush_bytes_, usable) : usable;
  if (budget <= 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("memory_budget_bytes: flushing the GPU's cache needs ", flush_bytes_, " of ",
                     memory_budget_bytes));
  }
  ASSIGN_OR_RETURN(std::unique_ptr<GpuProblem> opened,
                   GpuProblem::Create(problem, resources(), budget));
  return opened;
}

}  // namespace convtune::worker

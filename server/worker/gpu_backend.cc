#include <cuda_runtime_api.h>
#include <cudnn.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/model/problem/conv_problem.h"
#include "server/worker/backend.h"
#include "server/worker/cudnn/cudnn_library.h"
#include "server/worker/cudnn/cudnn_status.h"
#include "server/worker/cudnn/owned.h"
#include "server/worker/device/cuda_stream.h"
#include "server/worker/device/device_info.h"
#include "server/worker/device/device_memory.h"
#include "server/worker/device/kernels.h"
#include "server/worker/device/nvml.h"
#include "server/worker/gpu_problem.h"
#include "server/worker/timing/timer.h"
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

// A GpuBackend works on a GPU. It holds the CUDA context, a stream, a cuDNN handle and our kernels
// for as long as it lives.
class GpuBackend : public Backend {
 public:
  explicit GpuBackend(device::DeviceInfo info) : info_(std::move(info)) {}

  // Makes all that it holds. Before everything else.
  absl::Status Start(int ordinal, const OnStart& on_step) {
    RETURN_IF_ERROR(on_step("create a CUDA context"));
    RETURN_IF_ERROR(cudnn::ToStatus(cudaSetDevice(ordinal), "select the GPU"));
    cudaStream_t stream = nullptr;
    RETURN_IF_ERROR(cudnn::ToStatus(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
                                    "create a stream"));
    stream_.reset(stream);
    RETURN_IF_ERROR(on_step("create a cuDNN handle"));
    cudnnHandle_t handle = nullptr;
    RETURN_IF_ERROR(cudnn::ToStatus(cudnnCreate(&handle), "create a cuDNN handle"));
    handle_.reset(handle);
    RETURN_IF_ERROR(cudnn::ToStatus(cudnnSetStream(handle, stream), "set cuDNN's stream"));
    RETURN_IF_ERROR(on_step("load the worker's kernels"));
    ASSIGN_OR_RETURN(kernels_, device::Kernels::Load(info_.environment.sm_count, stream));
    ASSIGN_OR_RETURN(const int l2_bytes, device::Attribute(cudaDevAttrL2CacheSize, ordinal));
    flush_bytes_ = timing::FlushBytes(l2_bytes);
    memory_bytes_per_second_ = MemoryBytesPerSecond(ordinal);
    ASSIGN_OR_RETURN(timed_stream_, device::CudaStream::Create(stream, kernels_.get(), l2_bytes));
    nvml_ = device::Nvml::Open(info_.pci_bus_id);
    return absl::OkStatus();
  }

  const Environment& environment() const override { return info_.environment; }
  const Provenance& provenance() const override { return info_.provenance; }

  ConditionsLook LookAtConditions() override {
    if (nvml_.ok()) return (*nvml_)->Look();
    return {{}, std::string(nvml_.status().message())};
  }

  absl::StatusOr<SelfCheck> CheckSelf(
      uint32_t lost_steps, const std::function<absl::Status(uint32_t step)>& on_step) override {
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

  void Apply(const SelfCheck& check) override {
    blocking_kernels_ = check.works(SelfCheckBit::kBlockingKernel);
    captures_ = check.works(SelfCheckBit::kCaptures);
  }

  void Recover() override { cudnn::Recover(stream_.get()); }

  absl::StatusOr<std::unique_ptr<BackendProblem>> Open(const ConvProblem& problem,
                                                       int64_t memory_budget_bytes) override {
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
    return OpenGpuProblem(problem, resources(), budget);
  }

 private:
  GpuResources resources() {
    return {handle_.get(),  stream_.get(),     timed_stream_.get(),
            kernels_.get(), blocking_kernels_, captures_};
  }

  const device::DeviceInfo info_;
  // Each of these uses those above it, and is destroyed before them.
  cudnn::Owned<cudaStream_t, cudaStreamDestroy> stream_;
  cudnn::Owned<cudnnHandle_t, cudnnDestroy> handle_;
  std::unique_ptr<device::Kernels> kernels_;
  std::unique_ptr<device::CudaStream> timed_stream_;
  bool blocking_kernels_ = true;
  bool captures_ = true;
  int64_t flush_bytes_ = 0;
  double memory_bytes_per_second_ = 0;
  absl::StatusOr<std::unique_ptr<device::Nvml>> nvml_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> MakeGpuBackend(int ordinal, const OnStart& on_step) {
  cudnn::KeepNvrtcLoaded();
  cudnn::LoadLegacyLibraries();
  ASSIGN_OR_RETURN(device::DeviceInfo info, device::DescribeGpu(ordinal));
  auto backend = std::make_unique<GpuBackend>(std::move(info));
  RETURN_IF_ERROR(backend->Start(ordinal, on_step));
  return backend;
}

}  // namespace convtune::worker

// A GpuSelfCheckDevice runs the steps of the self-check on a GPU.
#pragma once

#include <cuda_runtime_api.h>

#include <optional>
#include <string>

#include "server/worker/device/device_memory.h"
#include "server/worker/gpu_problem.h"
#include "server/worker/verify/self_check.h"

namespace convtune::worker {

// The text form of a cell's known convolution: small and asymmetric, so that no
// dimension can be taken for another.
std::string KnownProblem(const SelfCheckCell& cell);

class GpuSelfCheckDevice : public verify::SelfCheckDevice {
 public:
  // The arguments outlive it; `stream` is that of `resources`.
  GpuSelfCheckDevice(const GpuResources& resources, timing::TimedStream* stream,
                     int64_t flush_bytes)
      : resources_(resources), stream_(stream), flush_bytes_(flush_bytes) {}

  timing::TimedStream* stream() override { return stream_; }
  absl::StatusOr<timing::MemorySpan> Memory() override;
  int64_t flush_bytes() const override { return flush_bytes_; }
  absl::StatusOr<CheckedRun> RunKnown(const SelfCheckCell& cell) override;
  absl::StatusOr<verify::OutputLook> Look(verify::PlantedFault fault) override;
  absl::StatusOr<CheckedRun> RunAfterSpoiltCapture() override;

 private:
  // A known convolution with its stock choice, ready to be checked.
  struct Known {
    std::unique_ptr<GpuProblem> problem;
    CandidateId stock;
  };
  absl::StatusOr<Known> Open(const SelfCheckCell& cell);

  const GpuResources resources_;
  timing::TimedStream* const stream_;
  const int64_t flush_bytes_;
  std::optional<device::DeviceBuffer> memory_;
};

}  // namespace convtune::worker

// A GpuSelfCheckDevice runs the steps of the self-check on a GPU.
#pragma once

#include <cuda_runtime_api.h>

#include <optional>
#include <string>

#include "server/worker/device/device_memory.h"
#include "server/worker/gpu_problem.h"
#include "server/worker/verify/self_check.h"

namespace convtune::worker {

// The convolution of the self-check. All of its sizes differ, so that code which mixes
// two dimensions up computes something else.
inline constexpr char kKnownProblem[] = "fwd,x=2x8x9x7,w=16x8x3x3,pad=1,stride=2,nhwc,f16";

class GpuSelfCheckDevice : public verify::SelfCheckDevice {
 public:
  // The arguments outlive it; `stream` is that of `resources`.
  GpuSelfCheckDevice(const GpuResources& resources, timing::TimedStream* stream,
                     int64_t flush_bytes, double memory_bytes_per_second)
      : resources_(resources),
        stream_(stream),
        flush_bytes_(flush_bytes),
        memory_bytes_per_second_(memory_bytes_per_second) {}

  timing::TimedStream* stream() override { return stream_; }
  absl::StatusOr<timing::MemorySpan> Memory() override;
  int64_t flush_bytes() const override { return flush_bytes_; }
  double memory_bytes_per_second() const override { return memory_bytes_per_second_; }
  absl::StatusOr<worker::v1::Checked> Look(verify::PlantedFault fault) override;
  absl::StatusOr<worker::v1::Checked> RunAfterSpoiltCapture() override;

 private:
  const GpuResources resources_;
  timing::TimedStream* const stream_;
  const int64_t flush_bytes_;
  const double memory_bytes_per_second_;
  std::optional<device::DeviceBuffer> memory_;
};

}  // namespace convtune::worker

// GpuWatchers have each GPU watched by a process of its own, and say what becomes of the GPU.
#pragma once

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/base/cancel_token.h"
#include "server/devices/device.h"
#include "server/devices/gpu_health.h"

namespace convtune::convtuned {

// See "A GPU that is lost" in server/devices/README.md. A thread for each GPU.
class GpuWatchers {
 public:
  // Watches those of `devices` that are GPUs; `health`, which outlives the watchers, knows them.
  // `worker`: the program.
  static absl::StatusOr<std::unique_ptr<GpuWatchers>> Start(
      const std::string& worker, const std::vector<devices::DeviceSpec>& devices,
      devices::GpuHealth* health);
  // Ends the processes.
  ~GpuWatchers();

 private:
  explicit GpuWatchers(std::unique_ptr<CancelToken> stop) : stop_(std::move(stop)) {}

  const std::unique_ptr<CancelToken> stop_;
  std::vector<std::thread> threads_;
};

}  // namespace convtune::convtuned

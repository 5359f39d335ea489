// A GpuWatchProcess has a GPU watched by a process of its own, and says what becomes
// of the GPU.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/base/cancel_token.h"
#include "server/devices/gpu_health.h"
#include "server/supervisor/device.h"
#include "server/supervisor/worker_process.h"

namespace convtune::convtuned {

// See "A GPU that is lost" in server/devices/README.md. One thread. Thread-safe.
class GpuWatchProcess {
 public:
  // `command` is that of the process; the socket is added to it. `health` outlives it.
  static absl::StatusOr<std::unique_ptr<GpuWatchProcess>> Create(
      const supervisor::DeviceSpec& device, std::vector<std::string> command,
      devices::GpuHealth* health);
  // Ends the process.
  ~GpuWatchProcess();
  GpuWatchProcess(const GpuWatchProcess&) = delete;
  GpuWatchProcess& operator=(const GpuWatchProcess&) = delete;

 private:
  // The way in which one process ended.
  enum class End { kLost, kFailed, kUnwatchable };

  GpuWatchProcess(const supervisor::DeviceSpec& device, std::vector<std::string> command,
                  devices::GpuHealth* health, std::unique_ptr<CancelToken> stop);
  void Run();
  End WatchOnce();
  // Nothing: the line was one of many. Else how the process came to its end.
  std::optional<End> Take(const std::string& line);
  void SayBlind(const std::string& why);

  const std::string device_;
  const std::string library_path_;
  const std::vector<std::string> command_;
  devices::GpuHealth* const health_;
  const std::unique_ptr<CancelToken> stop_;
  // The thread's own.
  bool watched_ = false;   // at any time
  bool watching_ = false;  // by the last process
  bool lost_ = false;
  bool blind_ = false;  // it was said
  std::thread thread_;
};

// A watcher for each of the devices that has one of `pci_bus_ids` (by device), which are added
// to `health`. `worker`: the program.
absl::StatusOr<std::vector<std::unique_ptr<GpuWatchProcess>>> WatchDevices(
    const std::string& worker, const std::vector<supervisor::DeviceSpec>& devices,
    const std::map<std::string, std::string>& pci_bus_ids, devices::GpuHealth* health);

}  // namespace convtune::convtuned

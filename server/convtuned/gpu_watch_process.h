// A GpuWatchProcess has a GPU watched by a process of its own, and says what becomes
// of the GPU.
#pragma once

#include <functional>
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

// NVML hangs with a GPU that is lost: whoever asks it is no part of the
// daemon. While a GPU is lost nothing holds it, so that it can be reset; it is
// looked at once in `retry`, and is back when NVML knows it and the driver does
// not ask for a reset any more. One thread. Thread-safe.
class GpuWatchProcess {
 public:
  struct Options {
    std::string device;             // "gpu:0"
    std::vector<std::string> argv;  // of the process; the socket is added to it
    std::string library_path = {};  // as WorkerProcess::Start takes it
    // From the watcher's thread. News about the GPU only if they are new.
    std::function<void(const devices::GpuEvent&)> report;
    absl::Duration retry = absl::Seconds(2);
    absl::Duration retry_max = absl::Minutes(1);  // where it is not the GPU that fails
  };

  static absl::StatusOr<std::unique_ptr<GpuWatchProcess>> Create(Options options);
  // Ends the process.
  ~GpuWatchProcess();
  GpuWatchProcess(const GpuWatchProcess&) = delete;
  GpuWatchProcess& operator=(const GpuWatchProcess&) = delete;

 private:
  // The way in which one process ended.
  enum class End { kLost, kFailed, kUnwatchable };

  GpuWatchProcess(Options options, std::unique_ptr<CancelToken> stop);
  void Run();
  End WatchOnce();
  // Nothing: the line was one of many. Else how the process came to its end.
  std::optional<End> Take(const std::string& line);
  void SayBlind(const std::string& why);

  const Options options_;
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

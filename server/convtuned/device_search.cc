#include "server/convtuned/device_search.h"

#include <unistd.h>

#include <algorithm>

#include "absl/time/clock.h"

namespace convtune::convtuned {
namespace {

bool HasDevice(const ProbeResult& found) {
  return std::any_of(
      found.devices.begin(), found.devices.end(),
      [](const supervisor::DeviceSpec& device) { return !device.environment.profile; });
}

// On most machines without a GPU there is none, and looking for it is free.
bool HasDriver() {
  return access("/dev/nvidiactl", F_OK) == 0 || access("/proc/driver/nvidia", F_OK) == 0 ||
         access("/dev/dxg", F_OK) == 0;
}

}  // namespace

DeviceSearch::DeviceSearch(const Flags& flags, const ProbeResult& found, StopSignals* signals)
    : flags_(flags),
      signals_(signals),
      wanted_(flags.devices != "none" && !HasDevice(found)),
      next_(absl::Now() + flags.probe_interval) {}

bool DeviceSearch::Look() {
  if (absl::Now() < next()) return false;
  bool found = false;
  if (flags_.devices != "all" || HasDriver()) {
    ProbeOptions options;
    options.worker = flags_.worker;
    options.devices = flags_.devices;
    options.stop = [this] { return signals_->stopped(); };
    found = HasDevice(ProbeDevices(options));
  }
  next_ = absl::Now() + flags_.probe_interval;
  return found;
}

}  // namespace convtune::convtuned

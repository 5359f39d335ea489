// Who a device is: environment, provenance, device properties.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "proto/model/environment.h"
#include "server/worker/device_profile.h"

namespace convtune {

// A device as the worker presents it.
struct DeviceInfo {
  std::string name;  // "gpu:0" or "profile:nvidia-h200"
  Environment environment;
  Provenance provenance;
  std::string pci_bus_id;  // "0000:01:00.0"; empty for a profile
};

// Number of cards; 0 without a driver. UNAVAILABLE, with CUDA's text, if the
// driver is there and fails.
absl::StatusOr<int> CountGpus();

// None of these creates a CUDA context.
absl::StatusOr<DeviceInfo> DescribeGpu(int ordinal);
DeviceInfo DescribeProfile(const DeviceProfile& profile);

// Device-properties JSON of a card, in the keys of deploy/profiles.
absl::StatusOr<std::string> DumpDeviceProperties(int ordinal);

// One line of JSON, see `convtune-worker --probe`; `error` is empty if the
// device is usable.
std::string ToProbeJson(const DeviceInfo& info, const std::string& error);

}  // namespace convtune

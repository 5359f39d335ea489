// The identity of a device: environment, provenance, device properties.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "absl/status/statusor.h"
#include "proto/model/environment.h"
#include "server/worker/device/device_profile.h"

namespace convtune::worker::device {

// A device as the worker presents it.
struct DeviceInfo {
  std::string name;  // "gpu:0" or "profile:nvidia-h200"
  Environment environment;
  Provenance provenance;
  std::string pci_bus_id;  // "0000:01:00.0"; empty for a profile
};

// Says whether the driver can serve this build. `error` is CUDA's answer to cudaGetDeviceCount,
// `driver` the CUDA version that the driver is for, as cudaDriverGetVersion says it; 0: there is no
// driver, which is no error. FAILED_PRECONDITION: the driver is too old for the CUDA that this
// worker is built for.
absl::Status DriverStatus(cudaError_t error, int driver);

// Number of GPUs; 0 without a driver. Errors are DriverStatus'.
absl::StatusOr<int> CountGpus();

// Errors are CUDA's.
absl::StatusOr<int> Attribute(cudaDeviceAttr attribute, int ordinal);

// None of these creates a CUDA context. Errors are those of CountGpus, UNAVAILABLE
// where there is no such GPU, and CUDA's.
absl::StatusOr<DeviceInfo> DescribeGpu(int ordinal);
DeviceInfo DescribeProfile(const DeviceProfile& profile);

// Device-properties JSON of a GPU, in the keys of deploy/profiles.
absl::StatusOr<std::string> DumpDeviceProperties(int ordinal);

// One line of JSON, see `convtune-worker --probe`; `error` is empty if the
// device is usable.
std::string ToProbeJson(const DeviceInfo& info, const std::string& error);

}  // namespace convtune::worker::device

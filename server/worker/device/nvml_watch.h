// WatchDevice reports a GPU's driver errors as they come, and whether the GPU can
// be used at all.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace convtune::worker::device {

// Writes a frame for each thing that the daemon has to know to the socket `fd`:
//   watching      the GPU works, and is watched from now on
//   xid N         the driver reported it
//   lost WHY      the GPU is lost, or has to be reset
//   away WHY      NVML refuses; the GPU may come back
//   unwatchable WHY   there is no NVML, it is too old, or the GPU reports no errors
// Needs neither CUDA nor cuDNN. Ends with OK after the last three. Returns an error if nobody
// reads.
absl::Status WatchDevice(const std::string& pci_bus_id, int fd);

}  // namespace convtune::worker::device

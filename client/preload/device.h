// Finds the environment that a convolution runs in: the GPU and the cuDNN.
#pragma once

#include <string_view>

#include "db/snapshot/keys.h"

namespace convtune::preload {

// Fills in the environment of the GPU of the calling thread's current context. False without a CUDA
// driver, without a context, or where the driver does not tell a property. Thread-safe; a GPU is
// asked once.
bool CurrentEnvironment(snapshot::EnvironmentKey* environment);
// The same for the GPU that CUDA's driver gives this number.
bool EnvironmentOfDevice(int ordinal, snapshot::EnvironmentKey* environment);

// True if what is launched into the stream now goes into a CUDA graph instead of
// running. False without a CUDA driver. `stream` is a cudaStream_t. Thread-safe;
// leaves the capture as it is.
bool IsCapturing(void* stream);

// Fills in the environment that a device-properties JSON text of cuDNN describes. False unless it
// has one deviceName, deviceVer and multiProcessorCount each, without escapes. Thread-safe.
bool EnvironmentOfProperties(std::string_view json, snapshot::EnvironmentKey* environment);

}  // namespace convtune::preload

// Finds the environment that a convolution runs in.
#pragma once

#include <string_view>

#include "db/snapshot/keys.h"

namespace convtune::preload {

// Of the GPU of the calling thread's current context. False without a CUDA
// driver, without a context, or where a property cannot be told. Thread-safe;
// a GPU is asked once.
bool CurrentEnvironment(snapshot::EnvironmentKey* environment);
// Of the GPU with this number.
bool EnvironmentOfDevice(int ordinal, snapshot::EnvironmentKey* environment);

// True if what is launched into the stream now goes into a CUDA graph instead of
// running. False without a CUDA driver. `stream` is a cudaStream_t. Thread-safe;
// leaves the capture as it is.
bool IsCapturing(void* stream);

// Of a device-properties JSON text, as cuDNN takes it. False unless it has one
// deviceName, deviceVer and multiProcessorCount each, without escapes.
bool EnvironmentOfProperties(std::string_view json, snapshot::EnvironmentKey* environment);

}  // namespace convtune::preload

// Finds the cuDNN and the GPU that this process has, as far as it has loaded them.
#pragma once

#include "client/cpp/include/convtune/resolver.h"

namespace convtune::client {

// `program` has two parts: the cuDNN (version, library configuration) and the GPU (all
// else). Fills in each part that is empty, as far as it is found. The GPU is that of
// the calling thread's context, else the only kind that the process sees. Loads
// and initialises nothing: a cuDNN that is not loaded and a driver that is not
// initialised are not found. Thread-safe.
void FindProgram(Environment* program);
// Does the same for the GPU alone.
void FindGpu(Environment* program);

}  // namespace convtune::client

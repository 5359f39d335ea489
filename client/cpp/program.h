// Finds the cuDNN and the GPU that this process has, as far as it has loaded them.
#pragma once

#include "client/cpp/include/convtune/resolver.h"

namespace convtune::client {

// Adds what is found to those of `program`'s two parts that say nothing: the
// cuDNN (version, library configuration), and the GPU (all else), which is that of
// the calling thread's context, else the only kind that the process sees. Loads
// and initialises nothing: a cuDNN that is not loaded and a driver that is not
// initialised are not found. Thread-safe.
void FindProgram(Environment* program);
// The same for the GPU alone.
void FindGpu(Environment* program);

}  // namespace convtune::client

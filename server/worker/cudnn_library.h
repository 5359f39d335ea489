// The cuDNN that is loaded.
#pragma once

#include <string>

#include "proto/model/environment.h"

namespace convtune {

// FULL if the precompiled engines lie beside the cuDNN that is loaded.
LibraryConfiguration LoadedLibraryConfiguration();
CudnnVersion LoadedCudnnVersion();

// The builds of the libraries that cuDNN would load by itself, where they are
// found: ",cublaslt=a7d443494f0d,nvrtc=65be0db342ad". Loads neither.
std::string CudaLibrariesText();

// Loads NVRTC for the life of the process, from where cuDNN would. cuDNN opens
// and closes it for every operation graph, and relocating it takes ten times
// as long as the heuristics themselves. Nothing else changes if it is not
// found. Idempotent.
void KeepNvrtcLoaded();

}  // namespace convtune

// Facts about the loaded cuDNN: its version, its parts and where they come from.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/model/environment.h"

namespace convtune::worker::cudnn {

// FULL if the precompiled engines lie beside the cuDNN that is loaded.
LibraryConfiguration LoadedLibraryConfiguration();

// The real paths of the libraries of cuDNN that are loaded by now.
std::vector<std::string> LoadedCudnnFiles();

// Describes what is wrong with these files of cuDNN: that they do not lie in
// one folder, or are not of one version as far as their names say it. Names the
// odd ones, those that are fewer. Empty if nothing is.
std::string DescribeMixture(const std::vector<std::string>& files);

// OK if the libraries of cuDNN that are loaded are of one folder and version;
// else FAILED_PRECONDITION with the odd one. To be called once they are loaded,
// which cuDNN does as it needs them.
absl::Status CheckLoadedCudnn();

// Loads what the legacy API's first call would, so that CheckLoadedCudnn() sees it.
void LoadLegacyLibraries();

// The paths of the loaded cuDNN and of the libraries that it would load by itself. An
// empty path is not known.
struct CudaLibraries {
  int cuda_major = 0;  // that cuDNN was built for
  std::string cudnn_folder;
  std::string cublaslt;
  std::string nvrtc;
};

// Looks for them where cuDNN would. Loads neither.
CudaLibraries LocateCudaLibraries();

// The first 12 digits of the GNU build ID of an ELF file (64 bit, of this
// machine's byte order), which no two versions of a library share; "size-N" for
// one without. Empty if the file cannot be read or is no ELF file.
std::string ElfBuildId(const std::string& path);

// Returns the path of `name` in the first of `folders` that has it, after those of
// $LD_LIBRARY_PATH, which the loader asks before them; empty if there is none.
std::string FindLibrary(const std::string& name, const std::vector<std::string>& folders);

// Loads NVRTC for the life of the process, from where cuDNN would. cuDNN opens
// and closes it for every operation graph, and relocating it takes ten times
// as long as the heuristics themselves. Nothing else changes if it is not
// found. Idempotent.
void KeepNvrtcLoaded();

}  // namespace convtune::worker::cudnn

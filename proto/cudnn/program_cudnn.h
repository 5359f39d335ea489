// A LoadedCudnn is the cuDNN that a program would load, found without running it.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace convtune {

// A library that cuDNN opens when a program needs it.
struct SubLibrary {
  std::string name;        // "libcudnn_engines_tensor_ir"
  std::string path;        // the file that the loader finds; empty: it finds no file
  std::string version;     // of the cuDNN that the file is of; empty: not known
  bool in_folder = false;  // the program's own cuDNN has one in its folder
};

// The cuDNN that a program, or a package of a Python, loads.
struct LoadedCudnn {
  std::string by;                     // "/venv/bin/python's torch"
  std::string folder;                 // of libcudnn.so.9; empty: the loader finds none
  std::string version;                // "9.20.0"; "8" of an older one; empty: not known
  std::vector<SubLibrary> libraries;  // all that cuDNN names
  std::string mend;  // the command that installs another cuDNN there; empty: none is known
  // False where the program links no cuDNN: this is the one that it would get if it opened one.
  bool linked = true;
};

// `program` is a file, a name that PATH has, a venv's folder, or that of libcudnn.so.9. Of a
// Python the packages that are built for cuDNN are looked at. Asks the loader of this machine,
// under this process's environment. Errors name `option` and the rule.
absl::StatusOr<std::vector<LoadedCudnn>> FindCudnn(const std::string& option,
                                                   const std::string& program);

// True if the folder has the library of precompiled engines, which a package for JIT lacks.
bool HasPrecompiled(const LoadedCudnn& cudnn);

enum class CudnnState {
  kWhole,
  kForJitAlone,  // without precompiled engines, which a package for JIT has not
  kUnknown,      // it does not say which libraries it opens
  kIncomplete,   // the loader finds no file for a library that it names
  kMixed,        // the loader finds a library of another cuDNN
  kOlder,        // convtune serves cuDNN 9 alone
};

struct CudnnExamination {
  CudnnState state = CudnnState::kUnknown;
  std::string what;    // "/venv/bin/python's torch loads cuDNN 9.20.0 of ..., which lacks ..."
  std::string advice;  // what mends it; empty: nothing is to be mended
};

// Whether the libraries of a cuDNN are all there, and of one version. Pure.
CudnnExamination ExamineCudnn(const LoadedCudnn& cudnn);

// Folders of cuBLAS and NVRTC beside the wheel of cuDNN, below the folder "nvidia" of packages.
std::vector<std::string> CudaFoldersIn(const std::string& packages);

// How another program is made to load a cuDNN.
struct CudnnToLoad {
  std::string folder;        // of libcudnn.so.9; empty: the one that it loads by itself
  std::string library_path;  // LD_LIBRARY_PATH: cuDNN, the CUDA for it, then our own
  std::string version = {};  // "9.20.0", or its beginning; empty: not known
};

// The library_path of a cuDNN in `folder` and the CUDA in the folders `cuda`.
std::string LibraryPath(const std::string& folder, std::vector<std::string> cuda);

// Finds the cuDNN of `program` as FindCudnn does, first without LD_LIBRARY_PATH, and with it only
// if that finds none. There must be one cuDNN, which the program or a package of its Python is
// built for, neither incomplete nor mixed under that library_path.
absl::StatusOr<CudnnToLoad> FindCudnnToLoad(const std::string& option, const std::string& program);

}  // namespace convtune

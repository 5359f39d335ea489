#include "server/worker/cudnn_library.h"

#include <cuda_runtime_api.h>
#include <cudnn.h>
#include <dlfcn.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/worker/library_build.h"

namespace convtune {
namespace {

// Folder of the library; empty if it is not known.
std::filesystem::path LibraryFolder() {
  // Not the address that our own linkage gives: that may be a stub of ours.
  void* symbol = dlsym(RTLD_DEFAULT, "cudnnGetVersion");
  Dl_info where = {};
  if (symbol == nullptr || dladdr(symbol, &where) == 0 || where.dli_fname == nullptr) {
    return {};
  }
  std::error_code error;
  const std::filesystem::path library = std::filesystem::weakly_canonical(where.dli_fname, error);
  return (error ? std::filesystem::path(where.dli_fname) : library).parent_path();
}

}  // namespace

LibraryConfiguration LoadedLibraryConfiguration() {
  const std::filesystem::path folder = LibraryFolder();
  if (folder.empty()) {
    return LibraryConfiguration::kUnknown;
  }
  return access((folder / "libcudnn_engines_precompiled.so.9").c_str(), R_OK) == 0
             ? LibraryConfiguration::kFull
             : LibraryConfiguration::kGraphJitOnly;
}

CudnnVersion LoadedCudnnVersion() {
  const int version = static_cast<int>(cudnnGetVersion());
  return {version / 10000, version % 10000 / 100, version % 100};
}

std::string CudaLibrariesText() {
  const int major = static_cast<int>(cudnnGetCudartVersion()) / 1000;
  const std::filesystem::path folder = LibraryFolder();
  // As the libraries of cuDNN's engines say in their RUNPATH; then where Debian
  // and NVIDIA's packages have them.
  std::vector<std::string> folders;
  for (const std::filesystem::path& place :
       {folder, folder / "../../cublas/lib", folder / "../../cuda_nvrtc/lib",
        folder / absl::StrCat("../../cu", major, "/lib"),
        std::filesystem::path("/usr/lib/x86_64-linux-gnu"),
        std::filesystem::path("/usr/lib/aarch64-linux-gnu"),
        std::filesystem::path("/usr/local/cuda/lib64")}) {
    folders.push_back(place.string());
  }
  std::string text;
  for (const auto& [key, library] :
       {std::pair("cublaslt", "libcublasLt.so."), std::pair("nvrtc", "libnvrtc.so.")}) {
    const std::string path = FindLibrary(absl::StrCat(library, major), folders);
    const std::string build = path.empty() ? "" : BuildOfLibrary(path);
    if (!build.empty()) absl::StrAppend(&text, ",", key, "=", build);
  }
  return text;
}

void KeepNvrtcLoaded() {
  const int major = static_cast<int>(cudnnGetCudartVersion()) / 1000;
  const std::string name = absl::StrCat("libnvrtc.so.", major);
  const std::filesystem::path folder = LibraryFolder();
  // Beside cuDNN, then where the wheels have it, then where the loader looks.
  for (const std::filesystem::path& path :
       {folder / name, folder / absl::StrCat("../../cu", major, "/lib") / name,
        folder / "../../cuda_nvrtc/lib" / name, std::filesystem::path(name)}) {
    if (dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE) != nullptr) {
      return;
    }
  }
}

}  // namespace convtune

// A CudnnCache finds the folder of a cuDNN that is named by its version, by a package that
// pins it, or by a folder. Versions come from PyPI's wheels, once.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/cudnn/program_cudnn.h"

namespace convtune::cli::commands::upgrade {

// Not thread-safe; several processes may share the folder.
class CudnnCache {
 public:
  struct Options {
    std::string folder;  // of the cache; empty: $XDG_CACHE_HOME/convtune/cudnn, else ~/.cache/...
    std::string index;   // of packages, in place of pip's own; empty: pip's own
    std::string worker;  // convtune-worker, which says what cuDNN it has itself
    // Is told, before something is downloaded, in one line.
    std::function<void(const std::string&)> say = [](const std::string&) {};
  };

  explicit CudnnCache(Options options);

  // `name` is a version ("9.28": the newest 9.28 of the cache, else of PyPI; for
  // the worker's own CUDA unless it names one), a requirement of pip's ("torch==2.15",
  // whose metadata pin one), a folder of or above libcudnn.so.9, a venv's too, or empty: the
  // worker's own. The result has the version that was asked for, if one was. A folder of the cache
  // is whole or not there: one from which somebody took the library away is fetched again. Errors
  // name `option` and the rule.
  absl::StatusOr<CudnnToLoad> Find(const std::string& option, const std::string& name);

 private:
  // A version and the CUDA that its wheel is for.
  struct Wheel {
    std::string version;
    int cuda_major = 0;
  };
  // As Find, but errors do not name the option, unless it is --cache.
  absl::StatusOr<CudnnToLoad> FindNamed(const std::string& name);
  // No wheel: `name` is a folder.
  absl::StatusOr<std::optional<Wheel>> Read(const std::string& name);
  // The version that the package of a requirement pins, "9.26.0.51+cu13".
  absl::StatusOr<std::string> FindPin(const std::string& requirement) const;
  absl::StatusOr<std::string> FindVersion(const Wheel& wheel);
  // The newest folder of the cache with a version; empty if no folder has it.
  std::string CachedVersion(const std::string& prefix, const std::vector<int>& wanted) const;
  // Has pip put `packages` into the folder `entry` of the cache, unless `is_there` once no other
  // process fills the cache. An `entry` that ends in "-" gets the wheel's version behind it.
  // `version`: the package's if it has four numbers, else the beginning of each package's.
  absl::Status Fetch(const std::vector<std::string>& packages, const std::string& version,
                     const std::string& entry, const std::function<bool()>& is_there);
  // Folders of cuBLASLt and NVRTC for that CUDA: the worker's own, else the cache's.
  absl::StatusOr<std::vector<std::string>> FindCuda(int cuda_major);
  void AskWorker();
  int OwnCuda();  // the worker's; 13 if it has none

  Options options_;
  bool asked_ = false;
  // The libraries of the worker, as it reported them.
  int own_cuda_major_ = 0;
  std::vector<std::string> own_folders_;
};

}  // namespace convtune::cli::commands::upgrade

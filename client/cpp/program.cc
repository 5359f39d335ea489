#include "client/cpp/program.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstddef>
#include <filesystem>
#include <string>
#include <system_error>

#include "proto/model/environment.h"

namespace convtune::client {
namespace {

// A library that is loaded already, however it was.
class Loaded {
 public:
  explicit Loaded(const char* name) : handle_(dlopen(name, RTLD_LAZY | RTLD_NOLOAD)) {}
  ~Loaded() {
    if (handle_ != nullptr) dlclose(handle_);
  }
  Loaded(const Loaded&) = delete;
  Loaded& operator=(const Loaded&) = delete;

  // Null if it is not there.
  void* Find(const char* name) const { return handle_ == nullptr ? nullptr : dlsym(handle_, name); }
  // What the function returns; -1 if it is not there.
  template <typename... Args>
  int Call(const char* name, Args... args) const {
    const auto function = reinterpret_cast<int (*)(Args...)>(Find(name));
    return function == nullptr ? -1 : function(args...);
  }

 private:
  void* const handle_;
};

// Returns "full" if the precompiled engines lie beside the library that has the function, as they
// do in a whole cuDNN 9, else "graph_jit_only"; empty: not known.
std::string LibraryBeside(const void* function) {
  Dl_info info = {};
  if (dladdr(function, &info) == 0 || info.dli_fname == nullptr) return "";
  std::error_code error;
  const std::filesystem::path file = std::filesystem::canonical(info.dli_fname, error);
  // Of a cuDNN that is linked statically nothing lies beside the program.
  if (error || file.filename().string().rfind("libcudnn", 0) != 0) return "";
  const auto engines = file.parent_path() / "libcudnn_engines_precompiled.so.9";
  return access(engines.c_str(), R_OK) == 0 ? "full" : "graph_jit_only";
}

void FindCudnn(Environment* program) {
  constexpr char kName[] = "cudnnGetVersion";
  const Loaded libraries[] = {Loaded("libcudnn.so.9"), Loaded("libcudnn_graph.so.9"),
                              Loaded("libcudnn.so.8")};
  void* get_version = dlsym(RTLD_DEFAULT, kName);
  for (const Loaded& library : libraries) {
    if (get_version == nullptr) get_version = library.Find(kName);
  }
  if (get_version == nullptr) return;
  const size_t number = reinterpret_cast<size_t (*)()>(get_version)();
  const auto version = CudnnVersion::FromNumber(static_cast<int64_t>(number));
  program->cudnn_version = version.ToText();
  constexpr int kFirstWithConfigurations = 9;
  if (version.major >= kFirstWithConfigurations) {
    program->library_configuration = LibraryBeside(get_version);
  }
}

constexpr int kMultiprocessorCount = 16;  // CUdevice_attribute
constexpr int kCapabilityMajor = 75;
constexpr int kCapabilityMinor = 76;

// `driver` is libcuda.so.1: cuda.h is not needed for five functions whose types are fixed.
bool AskDevice(const Loaded& driver, int device, Environment* gpu) {
  char name[256] = {};
  int major = 0;
  int minor = 0;
  if (driver.Call("cuDeviceGetName", &name[0], static_cast<int>(sizeof name - 1), device) != 0 ||
      driver.Call("cuDeviceGetAttribute", &gpu->sm_count, kMultiprocessorCount, device) != 0 ||
      driver.Call("cuDeviceGetAttribute", &major, kCapabilityMajor, device) != 0 ||
      driver.Call("cuDeviceGetAttribute", &minor, kCapabilityMinor, device) != 0) {
    return false;
  }
  gpu->gpu_model = name;
  gpu->compute_capability = std::to_string(major) + "." + std::to_string(minor);
  return true;
}

bool SameGpu(const Environment& a, const Environment& b) {
  return a.gpu_model == b.gpu_model && a.compute_capability == b.compute_capability &&
         a.sm_count == b.sm_count;
}

bool FindDevice(const Loaded& driver, Environment* gpu) {
  int device = 0;
  if (driver.Call("cuCtxGetDevice", &device) == 0) return AskDevice(driver, device, gpu);
  int count = 0;
  if (driver.Call("cuDeviceGetCount", &count) != 0) return false;
  for (int i = 0; i < count; ++i) {
    Environment other;
    if (driver.Call("cuDeviceGet", &device, i) != 0 || !AskDevice(driver, device, &other)) {
      return false;
    }
    if (i == 0) *gpu = other;
    if (!SameGpu(*gpu, other)) return false;
  }
  return count > 0;
}

}  // namespace

void FindGpu(Environment* program) {
  if (!program->gpu_model.empty() || !program->compute_capability.empty() ||
      program->sm_count != 0 || !program->mig_profile.empty() || program->profile) {
    return;
  }
  Environment gpu;
  if (!FindDevice(Loaded("libcuda.so.1"), &gpu)) return;
  program->gpu_model = gpu.gpu_model;
  program->compute_capability = gpu.compute_capability;
  program->sm_count = gpu.sm_count;
}

void FindProgram(Environment* program) {
  if (program->cudnn_version.empty() && program->library_configuration.empty()) FindCudnn(program);
  FindGpu(program);
}

}  // namespace convtune::client

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

  // False if it is not there.
  template <typename Function>
  bool Get(const char* name, Function* function) const {
    if (handle_ == nullptr) return false;
    *function = reinterpret_cast<Function>(dlsym(handle_, name));
    return *function != nullptr;
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
  using GetVersion = size_t (*)();
  auto get_version = reinterpret_cast<GetVersion>(dlsym(RTLD_DEFAULT, "cudnnGetVersion"));
  const Loaded libraries[] = {Loaded("libcudnn.so.9"), Loaded("libcudnn_graph.so.9"),
                              Loaded("libcudnn.so.8")};
  for (const Loaded& library : libraries) {
    if (get_version == nullptr) library.Get("cudnnGetVersion", &get_version);
  }
  if (get_version == nullptr) return;
  const auto version = CudnnVersion::FromNumber(static_cast<int64_t>(get_version()));
  program->cudnn_version = version.ToText();
  constexpr int kFirstWithConfigurations = 9;
  if (version.major >= kFirstWithConfigurations) {
    program->library_configuration = LibraryBeside(reinterpret_cast<const void*>(get_version));
  }
}

// Of libcuda.so.1: cuda.h is not needed for five functions whose types are fixed.
struct CudaDriver {
  int (*get_current)(int*) = nullptr;
  int (*get_count)(int*) = nullptr;
  int (*get_device)(int*, int) = nullptr;
  int (*get_name)(char*, int, int) = nullptr;
  int (*get_attribute)(int*, int, int) = nullptr;
};
constexpr int kMultiprocessorCount = 16;  // CUdevice_attribute
constexpr int kCapabilityMajor = 75;
constexpr int kCapabilityMinor = 76;

bool AskDevice(const CudaDriver& driver, int device, Environment* gpu) {
  char name[256] = {};
  int major = 0;
  int minor = 0;
  if (driver.get_name(name, sizeof name - 1, device) != 0 ||
      driver.get_attribute(&gpu->sm_count, kMultiprocessorCount, device) != 0 ||
      driver.get_attribute(&major, kCapabilityMajor, device) != 0 ||
      driver.get_attribute(&minor, kCapabilityMinor, device) != 0) {
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

bool FindDevice(const CudaDriver& driver, Environment* gpu) {
  int device = 0;
  if (driver.get_current(&device) == 0) return AskDevice(driver, device, gpu);
  int count = 0;
  if (driver.get_count(&count) != 0) return false;
  for (int i = 0; i < count; ++i) {
    Environment other;
    if (driver.get_device(&device, i) != 0 || !AskDevice(driver, device, &other)) return false;
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
  const Loaded library("libcuda.so.1");
  CudaDriver driver;
  Environment gpu;
  if (!library.Get("cuCtxGetDevice", &driver.get_current) ||
      !library.Get("cuDeviceGetCount", &driver.get_count) ||
      !library.Get("cuDeviceGet", &driver.get_device) ||
      !library.Get("cuDeviceGetName", &driver.get_name) ||
      !library.Get("cuDeviceGetAttribute", &driver.get_attribute) || !FindDevice(driver, &gpu)) {
    return;
  }
  program->gpu_model = gpu.gpu_model;
  program->compute_capability = gpu.compute_capability;
  program->sm_count = gpu.sm_count;
}

void FindProgram(Environment* program) {
  if (program->cudnn_version.empty() && program->library_configuration.empty()) FindCudnn(program);
  FindGpu(program);
}

}  // namespace convtune::client

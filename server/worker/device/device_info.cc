#include "server/worker/device/device_info.h"

#include <cuda_runtime_api.h>
#include <cudnn.h>

#include <nlohmann/json.hpp>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "server/worker/cudnn/cudnn_library.h"
#include "server/worker/cudnn/cudnn_status.h"

namespace convtune::worker::device {
namespace {

// See CONVTUNE_CUDA in the build.
constexpr int kOldestBuild = 12;

// CUDA's 13020 as "13.2".
std::string CudaVersionText(int version) {
  return absl::StrCat(version / 1000, ".", version % 1000 / 10);
}

void DescribeLibraries(DeviceInfo* info) {
  info->environment.cudnn = CudnnVersion::FromNumber(static_cast<int64_t>(cudnnGetVersion()));
  info->environment.library = cudnn::LoadedLibraryConfiguration();
  int version = CUDART_VERSION;
  cudaRuntimeGetVersion(&version);
  info->provenance.cuda_version = CudaVersionText(version);
  const cudnn::CudaLibraries found = cudnn::LocateCudaLibraries();
  info->provenance.cublaslt_build = cudnn::ElfBuildId(found.cublaslt);
  info->provenance.nvrtc_build = cudnn::ElfBuildId(found.nvrtc);
}

std::string UuidText(const cudaUUID_t& uuid) {
  const std::string hex = absl::BytesToHexString(std::string(uuid.bytes, sizeof(uuid.bytes)));
  return absl::StrCat("GPU-", hex.substr(0, 8), "-", hex.substr(8, 4), "-", hex.substr(12, 4), "-",
                      hex.substr(16, 4), "-", hex.substr(20));
}

}  // namespace

absl::StatusOr<int> Attribute(cudaDeviceAttr attribute, int ordinal) {
  int value = 0;
  RETURN_IF_ERROR(cudnn::ToStatus(cudaDeviceGetAttribute(&value, attribute, ordinal),
                                  absl::StrCat("attribute ", static_cast<int>(attribute))));
  return value;
}

absl::Status DriverStatus(cudaError_t error, int driver) {
  if (error == cudaErrorNoDevice || error == cudaErrorStubLibrary) return absl::OkStatus();
  // CUDA gives this error without any driver, too.
  if (error != cudaErrorInsufficientDriver) return cudnn::ToStatus(error, "count the GPUs");
  if (driver == 0) return absl::OkStatus();
  const int major = driver / 1000;
  return absl::FailedPreconditionError(absl::StrCat(
      "the driver is for CUDA up to ", CudaVersionText(driver), ", this worker is built for CUDA ",
      CudaVersionText(CUDART_VERSION), ": install a newer driver",
      major >= kOldestBuild
          ? absl::StrCat(", or use a build for CUDA ", major, " (-DCONVTUNE_CUDA=", major, ")")
          : ""));
}

absl::StatusOr<int> CountGpus() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  int driver = 0;  // CUDA leaves it at 0 where no driver is installed
  cudaDriverGetVersion(&driver);
  RETURN_IF_ERROR(DriverStatus(error, driver));
  return error == cudaSuccess ? count : 0;
}

absl::StatusOr<DeviceInfo> DescribeGpu(int ordinal) {
  ASSIGN_OR_RETURN(const int count, CountGpus());
  if (ordinal >= count) {
    return absl::UnavailableError(
        count == 0 ? "there is no GPU, or no driver for one"
                   : absl::StrCat("there is no such GPU: they are numbered from 0 to ", count - 1));
  }
  cudaDeviceProp properties = {};
  RETURN_IF_ERROR(cudnn::ToStatus(cudaGetDeviceProperties(&properties, ordinal),
                                  absl::StrCat("properties of GPU ", ordinal)));
  DeviceInfo info;
  info.name = absl::StrCat("gpu:", ordinal);
  info.environment.gpu_model = properties.name;
  info.environment.cc_major = properties.major;
  info.environment.cc_minor = properties.minor;
  info.environment.sm_count = properties.multiProcessorCount;
  DescribeLibraries(&info);
  int driver = 0;
  if (cudaDriverGetVersion(&driver) == cudaSuccess && driver > 0) {
    info.provenance.driver_version = CudaVersionText(driver);
  }
  info.provenance.gpu_uuid = UuidText(properties.uuid);
  char pci_bus_id[32] = "";
  if (cudaDeviceGetPCIBusId(pci_bus_id, sizeof(pci_bus_id), ordinal) == cudaSuccess) {
    info.pci_bus_id = pci_bus_id;
  }
  info.provenance.memory_bytes = static_cast<int64_t>(properties.totalGlobalMem);
  return info;
}

DeviceInfo DescribeProfile(const DeviceProfile& profile) {
  DeviceInfo info;
  info.name = absl::StrCat("profile:", profile.name);
  info.environment = profile.environment;
  DescribeLibraries(&info);
  info.provenance.memory_bytes = profile.memory_bytes;
  return info;
}

absl::StatusOr<std::string> DumpDeviceProperties(int ordinal) {
  ASSIGN_OR_RETURN(const DeviceInfo info, DescribeGpu(ordinal));
  cudaDeviceProp p = {};
  RETURN_IF_ERROR(cudnn::ToStatus(cudaGetDeviceProperties(&p, ordinal),
                                  absl::StrCat("properties of GPU ", ordinal)));
  ASSIGN_OR_RETURN(const int sm_clock, Attribute(cudaDevAttrClockRate, ordinal));
  ASSIGN_OR_RETURN(const int memory_clock, Attribute(cudaDevAttrMemoryClockRate, ordinal));
  ASSIGN_OR_RETURN(const int memory_bus, Attribute(cudaDevAttrGlobalMemoryBusWidth, ordinal));
  ASSIGN_OR_RETURN(const int cooperative, Attribute(cudaDevAttrCooperativeLaunch, ordinal));
  int driver = 0;
  RETURN_IF_ERROR(cudnn::ToStatus(cudaDriverGetVersion(&driver), "driver version"));
  // cudaDeviceId is the GPU's number on this machine, which is no property of the model.
  return ToLine({{"cudaDeviceId", 0},
                 {"deviceName", p.name},
                 {"deviceVer", p.major * 100 + p.minor * 10},
                 {"driverVer", driver},
                 {"isTccDriver", p.tccDriver},
                 {"l2CacheSize", p.l2CacheSize},
                 {"maxBlockSize", p.maxThreadsDim},
                 {"maxCtasPerSM", p.maxBlocksPerMultiProcessor},
                 {"maxGridSize", p.maxGridSize},
                 {"maxRegistersPerSM", p.regsPerMultiprocessor},
                 {"maxSharedMemoryPerBlock", p.sharedMemPerBlock},
                 {"maxSharedMemoryPerBlockOptin", p.sharedMemPerBlockOptin},
                 {"maxThreadsPerBlock", p.maxThreadsPerBlock},
                 {"maxThreadsPerSM", p.maxThreadsPerMultiProcessor},
                 {"memClockRateKHz", memory_clock},
                 {"memoryBusWidth", memory_bus},
                 {"multiProcessorCount", p.multiProcessorCount},
                 {"pciDeviceId", p.pciDeviceID},
                 {"regsPerBlock", p.regsPerBlock},
                 {"reservedSharedMemoryPerBlock", p.reservedSharedMemPerBlock},
                 {"smClockRateKHz", sm_clock},
                 {"supportCoopLaunch", cooperative},
                 {"totalGlobalMem", p.totalGlobalMem},
                 {"warpSize", p.warpSize}});
}

std::string ToProbeJson(const DeviceInfo& info, const std::string& error) {
  return ToLine({{"name", info.name},
                 {"environment", error.empty() ? info.environment.ToText() : ""},
                 {"gpu_model", info.environment.gpu_model},
                 {"driver_version", info.provenance.driver_version},
                 {"cuda_version", info.provenance.cuda_version},
                 {"cublaslt_build", info.provenance.cublaslt_build},
                 {"nvrtc_build", info.provenance.nvrtc_build},
                 {"gpu_uuid", info.provenance.gpu_uuid},
                 {"pci_bus_id", info.pci_bus_id},
                 {"memory_bytes", info.provenance.memory_bytes},
                 {"error", error}});
}

}  // namespace convtune::worker::device

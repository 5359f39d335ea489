// Device properties for tests, from public specifications of the H200.
#pragma once

#include <memory>

#include "server/worker/backend.h"
#include "server/worker/device/device_profile.h"

namespace convtune::worker::device {

inline constexpr char kTestProfile[] =
    R"({"deviceVer":900,"cudaDeviceId":0,"driverVer":13000,"maxGridSize":[2147483647,65535,65535],)"
    R"("maxBlockSize":[1024,1024,64],"regsPerBlock":65536,"multiProcessorCount":132,"warpSize":32,)"
    R"("maxSharedMemoryPerBlock":49152,"maxSharedMemoryPerBlockOptin":232448,)"
    R"("reservedSharedMemoryPerBlock":1024,"maxRegistersPerSM":65536,"maxCtasPerSM":32,)"
    R"("maxThreadsPerBlock":1024,"maxThreadsPerSM":2048,"pciDeviceId":0,"isTccDriver":0,)"
    R"("supportCoopLaunch":1,"smClockRateKHz":1980000,"memClockRateKHz":3201000,"memoryBusWidth":6144,)"
    R"("l2CacheSize":62914560,"deviceName":"NVIDIA H200","totalGlobalMem":150000000000})";

inline DeviceProfile TestProfile() { return DeviceProfile::Parse(kTestProfile).value(); }
inline std::unique_ptr<Backend> TestBackend() {
  return MakeDevicelessBackend(TestProfile()).value();
}

}  // namespace convtune::worker::device

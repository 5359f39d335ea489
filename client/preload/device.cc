#include "client/preload/device.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>

#include "client/preload/once.h"
#include "client/preload/real_cudnn.h"

namespace convtune::preload {
namespace {

// Of libcuda.so.1, which the program has loaded if it has a context. cuda.h is
// not needed for five functions whose types are fixed.
constexpr char kDriver[] = "libcuda.so.1";
constinit const Function<int (*)(int*)> GetCurrentDevice("cuCtxGetDevice", kDriver);
constinit const Function<int (*)(int*, int)> GetDevice("cuDeviceGet", kDriver);
constinit const Function<int (*)(char*, int, int)> GetName("cuDeviceGetName", kDriver);
constinit const Function<int (*)(int*, int, int)> GetAttribute("cuDeviceGetAttribute", kDriver);
// An old driver has none.
constinit const Function<int (*)(void*, int*)> StreamIsCapturing("cuStreamIsCapturing", kDriver);

constexpr int kMultiprocessorCount = 16;  // CUdevice_attribute
constexpr int kCapabilityMajor = 75;
constexpr int kCapabilityMinor = 76;

// 0 unknown, 1 full, 2 graph_jit_only: by what lies beside the loaded library.
uint8_t LibraryConfiguration() {
  char path[PATH_MAX];
  Dl_info info = {};
  if (dladdr(reinterpret_cast<const void*>(real_cudnn.GetVersion.Get()), &info) == 0 ||
      info.dli_fname == nullptr || realpath(info.dli_fname, path) == nullptr) {
    return 0;
  }
  char* slash = strrchr(path, '/');
  constexpr char kPrecompiled[] = "/libcudnn_engines_precompiled.so.9";
  if (slash == nullptr || static_cast<size_t>(slash - path) + sizeof kPrecompiled > sizeof path) {
    return 0;
  }
  memcpy(slash, kPrecompiled, sizeof kPrecompiled);
  return access(path, R_OK) == 0 ? 1 : 2;
}

// The part that is the same for every device of the process, asked once.
bool SetLibrary(snapshot::EnvironmentKey* key) {
  static Once<uint8_t> library;
  key->cudnn_version = static_cast<uint32_t>(real_cudnn.GetVersion());
  if (key->cudnn_version == 0) {
    return false;
  }
  const uint8_t* known = library.Get([](uint8_t* found) {
    *found = LibraryConfiguration();
    return true;
  });
  key->library = known == nullptr ? 0 : *known;
  return true;
}

bool AskDriver(int device, snapshot::EnvironmentKey* key) {
  char name[256] = {};
  int sms = 0;
  int major = 0;
  int minor = 0;
  if (GetName(name, sizeof name - 1, device) != 0 ||
      GetAttribute(&sms, kMultiprocessorCount, device) != 0 ||
      GetAttribute(&major, kCapabilityMajor, device) != 0 ||
      GetAttribute(&minor, kCapabilityMinor, device) != 0) {
    return false;
  }
  *key = {};
  key->cc_major = static_cast<uint8_t>(major);
  key->cc_minor = static_cast<uint8_t>(minor);
  key->sm_count = static_cast<uint32_t>(sms);
  return snapshot::SetModelSlug(name, strlen(name), key) && SetLibrary(key);
}

// A device that cannot be identified is not asked again.
struct KnownDevice {
  bool identified;
  snapshot::EnvironmentKey key;
};
constexpr int kMaxDevices = 64;
constinit Once<KnownDevice> devices[kMaxDevices];

bool Remembered(int device, snapshot::EnvironmentKey* environment) {
  if (device < 0 || device >= kMaxDevices) {
    return false;
  }
  const KnownDevice* known = devices[device].Get([&](KnownDevice* found) {
    found->identified = AskDriver(device, &found->key);
    return true;
  });
  *environment = known->key;
  return known->identified;
}

void SkipBlanks(std::string_view* text) {
  text->remove_prefix(std::min(text->find_first_not_of(" \t\n\r"), text->size()));
}

// What stands behind `"name":`; empty if the name is there twice or not at all. `name` has its
// quotes.
std::string_view Member(std::string_view json, std::string_view name) {
  std::string_view value;
  int found = 0;
  for (size_t at = json.find(name); at != std::string_view::npos; at = json.find(name, at + 1)) {
    std::string_view text = json;
    text.remove_prefix(at + name.size());
    SkipBlanks(&text);
    if (text.starts_with(':')) {
      text.remove_prefix(1);
      SkipBlanks(&text);
      value = text;
      ++found;
    }
  }
  return found == 1 ? value : std::string_view();
}

// Reads a whole number.
bool ReadNumber(std::string_view text, uint32_t most, uint32_t* value) {
  const auto [end, error] = std::from_chars(text.begin(), text.end(), *value);
  return error == std::errc() && *value <= most &&
         (end == text.end() || (*end != '.' && *end != 'e' && *end != 'E'));
}

}  // namespace

bool IsCapturing(void* stream) {
  constexpr int kNone = 0;  // CU_STREAM_CAPTURE_STATUS_NONE
  int status = kNone;
  // The legacy stream gives an error while another one captures; it does not.
  return StreamIsCapturing(stream, &status) == 0 && status != kNone;
}

bool CurrentEnvironment(snapshot::EnvironmentKey* environment) {
  int device = 0;
  return GetCurrentDevice(&device) == 0 && Remembered(device, environment);
}

bool EnvironmentOfDevice(int ordinal, snapshot::EnvironmentKey* environment) {
  int device = 0;
  return GetDevice(&device, ordinal) == 0 && Remembered(device, environment);
}

bool EnvironmentOfProperties(std::string_view json, snapshot::EnvironmentKey* environment) {
  *environment = {};
  environment->profile = 1;
  uint32_t version = 0;
  std::string_view name = Member(json, "\"deviceName\"");
  if (!ReadNumber(Member(json, "\"deviceVer\""), 25599, &version) ||
      !ReadNumber(Member(json, "\"multiProcessorCount\""), 100000, &environment->sm_count) ||
      !name.starts_with('"')) {
    return false;
  }
  environment->cc_major = static_cast<uint8_t>(version / 100);
  environment->cc_minor = static_cast<uint8_t>(version % 100 / 10);
  name.remove_prefix(1);
  const size_t end = name.find_first_of("\"\\");
  return end != std::string_view::npos && name[end] == '"' &&
         snapshot::SetModelSlug(name.data(), end, environment) && SetLibrary(environment);
}

}  // namespace convtune::preload

#include "server/worker/device/driver_stub.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <string>

#include "absl/strings/str_cat.h"
#include "proto/base/unique_fd.h"

namespace convtune::worker::device {

// Both are in the file that embed.cmake writes.
extern const unsigned char kDriverStub[];
extern const size_t kDriverStubBytes;

absl::Status LoadDriverStub() {
  constexpr int kFlags = RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE;
  // The second time it is the stub itself, by the name that it carries.
  if (dlopen("libcuda.so.1", kFlags) != nullptr) return absl::OkStatus();
  const UniqueFd file(memfd_create("convtune-driver-stub", MFD_CLOEXEC));
  if (!file.valid()) return absl::ErrnoToStatus(errno, "memfd_create");
  for (size_t written = 0; written < kDriverStubBytes;) {
    const ssize_t size = write(file.get(), kDriverStub + written, kDriverStubBytes - written);
    if (size <= 0) return absl::ErrnoToStatus(errno, "write the stub of libcuda.so.1");
    written += static_cast<size_t>(size);
  }
  const std::string path = absl::StrCat("/proc/self/fd/", file.get());
  if (dlopen(path.c_str(), kFlags) == nullptr) {
    return absl::InternalError(absl::StrCat("load the stub of libcuda.so.1: ", dlerror()));
  }
  return absl::OkStatus();
}

}  // namespace convtune::worker::device

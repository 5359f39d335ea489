#include "client/preload/real_cudnn.h"

#include <dlfcn.h>
#include <link.h>
#include <string.h>

#include "client/preload/once.h"

namespace convtune::preload {
namespace {

constexpr char kCnnLibrary[] = "libcudnn_cnn.so.9";
constexpr char kOpsLibrary[] = "libcudnn_ops.so.9";

// Does not load anything, and finds what was loaded RTLD_LOCAL too.
void* Loaded(const char* name) { return dlopen(name, RTLD_NOW | RTLD_NOLOAD); }

void* Symbol(void* handle, const char* name) {
  return handle == nullptr ? nullptr : RealDlsym()(handle, name);
}

// Address ranges of the objects that called, each with its verdict. Filled up
// to the limit, never emptied: cuDNN and the frameworks stay loaded.
struct Range {
  uintptr_t begin;
  uintptr_t end;
  bool cudnn;
};
constinit Once<Range> ranges[64];

// Fills in the range of the segment that has the address range->begin, if it is of this object.
int Match(dl_phdr_info* info, size_t /*size*/, void* data) {
  auto* range = static_cast<Range*>(data);
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = info->dlpi_phdr[i];
    const uintptr_t begin = info->dlpi_addr + segment.p_vaddr;
    if (segment.p_type == PT_LOAD && range->begin >= begin &&
        range->begin < begin + segment.p_memsz) {
      *range = {begin, begin + segment.p_memsz, IsCudnnLibrary(info->dlpi_name)};
      return 1;
    }
  }
  return 0;
}

bool FindRange(const void* address, Range* range) {
  range->begin = reinterpret_cast<uintptr_t>(address);
  return dl_iterate_phdr(Match, range) != 0;
}

void* FindNothing(void* /*handle*/, const char* /*name*/) { return nullptr; }

}  // namespace

// A sanitizer's runtime looks its functions up before it can be called.
__attribute__((no_sanitize("address", "undefined"))) Dlsym RealDlsym() {
  static Dlsym known = nullptr;
  Dlsym real = __atomic_load_n(&known, __ATOMIC_ACQUIRE);
  if (real != nullptr) {
    return real;
  }
  constexpr char kVersion[] = "GLIBC_2.34";
  void* found = dlvsym(RTLD_NEXT, "dlsym", kVersion);
  if (found == nullptr) {
    // This library was not preloaded, but opened.
    void* libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
    found = libc == nullptr ? nullptr : dlvsym(libc, "dlsym", kVersion);
  }
  real = found == nullptr ? FindNothing : reinterpret_cast<Dlsym>(found);
  // Without a version, as others define it: layers that share a GPU do.
  if (void* next = real(RTLD_NEXT, "dlsym"); next != nullptr) {
    real = reinterpret_cast<Dlsym>(next);
  }
  __atomic_store_n(&known, real, __ATOMIC_RELEASE);
  return real;
}

constinit const RealCudnn real_cudnn{kMainLibrary};
constinit const RealCudnn real_graph{kGraphLibrary};

void* RealSymbol(const char* name, const char* first) {
  for (const char* library : {first, kMainLibrary, kGraphLibrary, kCnnLibrary, kOpsLibrary}) {
    void* handle = Loaded(library);
    void* symbol = Symbol(handle, name);
    if (symbol != nullptr) {
      return symbol;  // and the library stays
    }
    if (handle != nullptr) {
      dlclose(handle);
    }
  }
  return nullptr;
}

bool IsReal(const char* name, const void* function) {
  for (const char* library : {kMainLibrary, kGraphLibrary, kCnnLibrary, kOpsLibrary}) {
    void* handle = Loaded(library);
    const bool same = handle != nullptr && Symbol(handle, name) == function;
    if (handle != nullptr) {
      dlclose(handle);  // the program may unload it
    }
    if (same) {
      return true;
    }
  }
  return false;
}

bool IsCudnnNow(const void* return_address) {
  Range range = {};
  return FindRange(return_address, &range) && range.cudnn;
}

bool IsCudnn(const void* return_address) {
  const auto address = reinterpret_cast<uintptr_t>(return_address);
  // Where another thread fills a slot at the same time, the next one has this object.
  for (Once<Range>& slot : ranges) {
    const Range* range = slot.Get([&](Range* found) { return FindRange(return_address, found); });
    if (range == nullptr) {
      break;
    }
    if (address >= range->begin && address < range->end) {
      return range->cudnn;
    }
  }
  return IsCudnnNow(return_address);
}

bool IsCudnnLibrary(const char* path) {
  constexpr char kPrefix[] = "libcudnn";
  constexpr char kFrontend[] = "libcudnn_frontend";
  const char* slash = strrchr(path, '/');
  const char* name = slash == nullptr ? path : slash + 1;
  return strncmp(name, kPrefix, strlen(kPrefix)) == 0 &&
         strncmp(name, kFrontend, strlen(kFrontend)) != 0;
}

}  // namespace convtune::preload

#include "client/preload/process/real_cudnn.h"

#include <dlfcn.h>
#include <link.h>

#include <atomic>

#include "client/preload/process/mutex.h"
#include "client/preload/process/once.h"

namespace convtune::preload::process {
namespace {

// Does not load anything, and finds what was loaded RTLD_LOCAL too.
void* Loaded(const char* name) { return dlopen(name, RTLD_NOW | RTLD_NOLOAD); }

void* Symbol(void* handle, const char* name) {
  return handle == nullptr ? nullptr : RealDlsym()(handle, name);
}

template <typename... Args>
cudnnStatus_t NotThere(Args... /*args*/) {
  return CUDNN_STATUS_NOT_INITIALIZED;
}

constexpr RealCudnn kNone = {nullptr,  NotThere, NotThere, NotThere,
                             NotThere, NotThere, NotThere, nullptr};

template <typename T>
void Fill(void* handle, const char* name, T* function) {
  void* symbol = Symbol(handle, name);
  if (symbol != nullptr) {
    *function = reinterpret_cast<T>(symbol);
  }
}

void Fill(void* handle, RealCudnn* real) {
  *real = kNone;
  Fill(handle, "cudnnGetVersion", &real->GetVersion);
  Fill(handle, "cudnnBackendCreateDescriptor", &real->Create);
  Fill(handle, "cudnnBackendDestroyDescriptor", &real->Destroy);
  Fill(handle, "cudnnBackendSetAttribute", &real->SetAttribute);
  Fill(handle, "cudnnBackendGetAttribute", &real->GetAttribute);
  Fill(handle, "cudnnBackendFinalize", &real->Finalize);
  Fill(handle, "cudnnBackendExecute", &real->Execute);
  Fill(handle, "cudnnGetStream", &real->GetStream);
}

// Looks in the libraries in turn. False while none of them is loaded.
bool Resolve(const char* name, const char* other, RealCudnn* found) {
  const char* const libraries[] = {name, other};
  for (const char* library : libraries) {
    void* handle = Loaded(library);
    if (Symbol(handle, "cudnnBackendFinalize") != nullptr) {
      Fill(handle, found);
      return true;
    }
  }
  return false;
}

constinit Once<RealCudnn> main_table;
constinit Once<RealCudnn> graph_table;

constexpr char kMain[] = "libcudnn.so.9";
constexpr char kGraph[] = "libcudnn_graph.so.9";

// Address ranges of the objects that called, each with its verdict. Filled up
// to the limit, never emptied: cuDNN and the frameworks stay loaded.
struct Range {
  uintptr_t begin;
  uintptr_t end;
  bool cudnn;
};
constexpr int kMaxRanges = 64;
Range ranges[kMaxRanges];
constinit std::atomic<int> range_count{0};
constinit Mutex range_mutex;

struct Search {
  uintptr_t address;
  bool found;
  Range range;
};

int Match(dl_phdr_info* info, size_t /*size*/, void* data) {
  auto* search = static_cast<Search*>(data);
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = info->dlpi_phdr[i];
    const uintptr_t begin = info->dlpi_addr + segment.p_vaddr;
    if (segment.p_type == PT_LOAD && search->address >= begin &&
        search->address < begin + segment.p_memsz) {
      search->range = {begin, begin + segment.p_memsz, IsCudnnLibrary(info->dlpi_name)};
      search->found = true;
      return 1;
    }
  }
  return 0;
}

void* FindNothing(void* /*handle*/, const char* /*name*/) { return nullptr; }

}  // namespace

Dlsym RealDlsym() {
  static constinit std::atomic<Dlsym> known{nullptr};
  Dlsym real = known.load(std::memory_order_acquire);
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
  known.store(real, std::memory_order_release);
  return real;
}

const RealCudnn& Real() {
  const RealCudnn* real =
      main_table.Get([](RealCudnn* found) { return Resolve(kMain, kGraph, found); });
  return real == nullptr ? kNone : *real;
}

const RealCudnn& RealGraph() {
  const RealCudnn* real =
      graph_table.Get([](RealCudnn* found) { return Resolve(kGraph, kMain, found); });
  return real == nullptr ? kNone : *real;
}

void* RealSymbol(const char* name) {
  const char* const libraries[] = {kMain, "libcudnn_cnn.so.9", "libcudnn_ops.so.9"};
  for (const char* library : libraries) {
    void* symbol = Symbol(Loaded(library), name);
    if (symbol != nullptr) {
      return symbol;
    }
  }
  return nullptr;
}

bool IsReal(const char* name, const void* function) {
  for (const char* library : {kMain, kGraph, "libcudnn_cnn.so.9", "libcudnn_ops.so.9"}) {
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
  Search search = {reinterpret_cast<uintptr_t>(return_address), false, {}};
  dl_iterate_phdr(Match, &search);
  return search.found && search.range.cudnn;
}

bool IsCudnn(const void* return_address) {
  const auto address = reinterpret_cast<uintptr_t>(return_address);
  const int known = range_count.load(std::memory_order_acquire);
  for (int i = 0; i < known; ++i) {
    if (address >= ranges[i].begin && address < ranges[i].end) {
      return ranges[i].cudnn;
    }
  }
  Search search = {address, false, {}};
  dl_iterate_phdr(Match, &search);
  if (!search.found) {
    return false;
  }
  const Locked locked(&range_mutex);
  const int count = range_count.load(std::memory_order_relaxed);
  if (count < kMaxRanges) {
    ranges[count] = search.range;
    range_count.store(count + 1, std::memory_order_release);
  }
  return search.range.cudnn;
}

const char* CudnnPath() {
  Dl_info info = {};
  const void* symbol = reinterpret_cast<const void*>(Real().GetVersion);
  if (symbol == nullptr || dladdr(symbol, &info) == 0 || info.dli_fname == nullptr) {
    return "";
  }
  return info.dli_fname;
}

}  // namespace convtune::preload::process

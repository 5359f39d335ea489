#include "client/preload/real_cudnn.h"

#include <dlfcn.h>
#include <link.h>
#include <string.h>

#include <atomic>

#include "client/preload/mutex.h"

namespace convtune::preload {
namespace {

// Does not load anything, and finds what was loaded RTLD_LOCAL too.
void* Loaded(const char* name) { return dlopen(name, RTLD_NOW | RTLD_NOLOAD); }

void* Symbol(void* handle, const char* name) {
  return handle == nullptr ? nullptr : dlsym(handle, name);
}

template <typename T>
void Fill(void* handle, const char* name, T* function) {
  *function = reinterpret_cast<T>(Symbol(handle, name));
}

void Fill(void* handle, RealCudnn* real) {
  Fill(handle, "cudnnGetVersion", &real->GetVersion);
  Fill(handle, "cudnnBackendCreateDescriptor", &real->Create);
  Fill(handle, "cudnnBackendDestroyDescriptor", &real->Destroy);
  Fill(handle, "cudnnBackendSetAttribute", &real->SetAttribute);
  Fill(handle, "cudnnBackendGetAttribute", &real->GetAttribute);
  Fill(handle, "cudnnBackendFinalize", &real->Finalize);
  Fill(handle, "cudnnBackendExecute", &real->Execute);
}

// A table that is filled once the library is there.
class Table {
 public:
  constexpr Table(const char* name, const char* other) : names_{name, other} {}

  const RealCudnn& Get() {
    if (!ready_.load(std::memory_order_acquire)) {
      Resolve();
    }
    return real_;
  }

 private:
  // The loader's lock is never taken under ours: a constructor that the loader
  // runs may call cuDNN.
  void Resolve() {
    RealCudnn found = {};
    for (const char* name : names_) {
      void* handle = Loaded(name);
      if (Symbol(handle, "cudnnBackendFinalize") != nullptr) {
        Fill(handle, &found);
        break;
      }
    }
    if (found.Finalize == nullptr) {
      return;
    }
    const Locked locked(&mutex_);
    if (!ready_.load(std::memory_order_relaxed)) {
      real_ = found;
      ready_.store(true, std::memory_order_release);
    }
  }

  const char* const names_[2];
  RealCudnn real_ = {};
  std::atomic<bool> ready_{false};
  Mutex mutex_;
};

constinit Table main_table("libcudnn.so.9", "libcudnn_graph.so.9");
constinit Table graph_table("libcudnn_graph.so.9", "libcudnn.so.9");

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
      const char* slash = strrchr(info->dlpi_name, '/');
      const char* name = slash == nullptr ? info->dlpi_name : slash + 1;
      search->range = {begin, begin + segment.p_memsz, strncmp(name, "libcudnn", 8) == 0};
      search->found = true;
      return 1;
    }
  }
  return 0;
}

}  // namespace

const RealCudnn& Real() { return main_table.Get(); }
const RealCudnn& RealGraph() { return graph_table.Get(); }

void* RealSymbol(const char* name) {
  for (const char* library : {"libcudnn.so.9", "libcudnn_cnn.so.9", "libcudnn_ops.so.9"}) {
    void* symbol = Symbol(Loaded(library), name);
    if (symbol != nullptr) {
      return symbol;
    }
  }
  return nullptr;
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

}  // namespace convtune::preload

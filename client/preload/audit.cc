// libconvtune_audit.so, for LD_AUDIT: programs that look cuDNN's functions up
// with dlsym, or bind them in a scope that LD_PRELOAD does not reach
// (RTLD_DEEPBIND), get the functions of libconvtune_preload.so all the same.
//
// The loader keeps an audit library in a namespace of its own; so it only says
// where to bind, and everything is done by the one preloaded library.
#include <elf.h>
#include <link.h>
#include <string.h>

#include <atomic>

#include "client/preload/process/library_name.h"

#define CONVTUNE_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

using convtune::preload::process::BaseName;
using convtune::preload::process::IsCudnnLibrary;
using convtune::preload::process::StartsWith;

// What an object's cookie says. For dlsym the loader calls la_symbind64 if
// either side's flags ask for it, so the flags alone are not enough.
constexpr uintptr_t kLeftAlone = 0;
constexpr uintptr_t kProgram = 1;

// The preloaded library, once the loader has opened it.
std::atomic<const link_map*> preload{nullptr};

// The loader has made the addresses absolute, but for read-only sections.
uintptr_t Address(const link_map* map, const ElfW(Dyn) & entry) {
  return entry.d_un.d_ptr < map->l_addr ? map->l_addr + entry.d_un.d_ptr : entry.d_un.d_ptr;
}

// Address of a function that the library exports; 0 if it has none of that
// name. It is linked with a DT_HASH table, whose chains count the symbols.
uintptr_t FindExport(const link_map* map, const char* name) {
  const ElfW(Sym)* symbols = nullptr;
  const char* strings = nullptr;
  const ElfW(Word)* hash = nullptr;
  for (const ElfW(Dyn)* entry = map->l_ld; entry->d_tag != DT_NULL; ++entry) {
    if (entry->d_tag == DT_SYMTAB) {
      symbols = reinterpret_cast<const ElfW(Sym)*>(Address(map, *entry));
    } else if (entry->d_tag == DT_STRTAB) {
      strings = reinterpret_cast<const char*>(Address(map, *entry));
    } else if (entry->d_tag == DT_HASH) {
      hash = reinterpret_cast<const ElfW(Word)*>(Address(map, *entry));
    }
  }
  if (symbols == nullptr || strings == nullptr || hash == nullptr) {
    return 0;
  }
  const ElfW(Word) count = hash[1];
  for (ElfW(Word) i = 1; i < count; ++i) {
    if (symbols[i].st_shndx != SHN_UNDEF && ELF64_ST_TYPE(symbols[i].st_info) == STT_FUNC &&
        strcmp(strings + symbols[i].st_name, name) == 0) {
      return map->l_addr + symbols[i].st_value;
    }
  }
  return 0;
}

}  // namespace

// The interface of rtld-audit(7); nothing that differs between its versions 1
// and 2 is used.
CONVTUNE_EXPORT unsigned int la_version(unsigned int version) {
  constexpr unsigned int kNewest = 2;
  return version < kNewest ? version : kNewest;
}

// Bindings to cuDNN are looked at, except those from cuDNN itself and from the
// preloaded library, which is how it reaches the real functions.
CONVTUNE_EXPORT unsigned int la_objopen(link_map* map, Lmid_t lmid, uintptr_t* cookie) {
  *cookie = kLeftAlone;
  if (lmid != LM_ID_BASE) {
    return 0;
  }
  if (IsCudnnLibrary(map->l_name)) {
    return LA_FLG_BINDTO;
  }
  if (strcmp(BaseName(map->l_name), "libconvtune_preload.so") == 0) {
    preload.store(map, std::memory_order_release);
    return 0;
  }
  *cookie = kProgram;
  return LA_FLG_BINDFROM;
}

CONVTUNE_EXPORT uintptr_t la_symbind64(ElfW(Sym) * symbol, unsigned int /*index*/, uintptr_t* from,
                                       uintptr_t* /*to*/, unsigned int* flags, const char* name) {
  *flags |= LA_SYMB_NOPLTENTER | LA_SYMB_NOPLTEXIT;
  const link_map* map = preload.load(std::memory_order_acquire);
  const uintptr_t replacement =
      map != nullptr && *from == kProgram && StartsWith(name, "cudnn") ? FindExport(map, name) : 0;
  return replacement != 0 ? replacement : symbol->st_value;
}

// dlsym in front of the C library's own, for programs that look cuDNN's functions up
// instead of linking it: ONNX Runtime from 1.28 on, cudnn-frontend for Python, XLA. On other
// processors than x86-64 there is no such hook, and they are served what cuDNN lists.
#if defined(__x86_64__)
#include <cudnn.h>
#include <dlfcn.h>
#include <string.h>

#include "client/preload/counters.h"
#include "client/preload/real_cudnn.h"

namespace {

struct Hook {
  const char* name;
  void* function;
};

#define CONVTUNE_HOOKED(name) \
  { #name, reinterpret_cast < void*>(&name) }

const Hook kHooks[] = {
    CONVTUNE_HOOKED(cudnnBackendCreateDescriptor),
    CONVTUNE_HOOKED(cudnnBackendDestroyDescriptor),
    CONVTUNE_HOOKED(cudnnBackendSetAttribute),
    CONVTUNE_HOOKED(cudnnBackendGetAttribute),
    CONVTUNE_HOOKED(cudnnBackendFinalize),
    CONVTUNE_HOOKED(cudnnBackendExecute),
    CONVTUNE_HOOKED(cudnnGetConvolutionForwardAlgorithm_v7),
    CONVTUNE_HOOKED(cudnnGetConvolutionBackwardDataAlgorithm_v7),
    CONVTUNE_HOOKED(cudnnGetConvolutionBackwardFilterAlgorithm_v7),
    CONVTUNE_HOOKED(cudnnFindConvolutionForwardAlgorithm),
    CONVTUNE_HOOKED(cudnnFindConvolutionBackwardDataAlgorithm),
    CONVTUNE_HOOKED(cudnnFindConvolutionBackwardFilterAlgorithm),
    CONVTUNE_HOOKED(cudnnFindConvolutionForwardAlgorithmEx),
    CONVTUNE_HOOKED(cudnnFindConvolutionBackwardDataAlgorithmEx),
    CONVTUNE_HOOKED(cudnnFindConvolutionBackwardFilterAlgorithmEx),
};

#undef CONVTUNE_HOOKED

}  // namespace

extern "C" {

// Where dlsym goes on. Set by convtune_replacement.
__attribute__((visibility("hidden"))) convtune::preload::Dlsym convtune_real_dlsym = nullptr;

// The hook that `caller` gets in the place of cuDNN's function; null: dlsym is to go on. RTLD_NEXT
// and RTLD_DEFAULT find what is preloaded by themselves. Before the name is known to be one of
// cuDNN's nothing is called that another library may have replaced by what calls dlsym.
__attribute__((visibility("hidden"), no_sanitize("address", "undefined"))) void*
convtune_replacement(void* handle, const char* name, const void* caller) {
  using namespace convtune::preload;  // NOLINT(google-build-using-namespace)
  // Threads that are the first at a time write the same address.
  __atomic_store_n(&convtune_real_dlsym, RealDlsym(), __ATOMIC_RELAXED);
  if (name == nullptr || name[0] != 'c' || name[1] != 'u' || name[2] != 'd' || name[3] != 'n' ||
      name[4] != 'n' || handle == RTLD_NEXT || handle == RTLD_DEFAULT || IsCudnnNow(caller)) {
    return nullptr;
  }
  for (const Hook& hook : kHooks) {
    if (strcmp(hook.name, name) == 0) {
      const void* found = RealDlsym()(handle, name);
      if (found == nullptr || !IsReal(name, found)) {
        return nullptr;
      }
      looked_up.store(true, std::memory_order_relaxed);
      return hook.function;
    }
  }
  return nullptr;
}

}  // extern "C"

// A jump, and not a call: the C library tells by the return address whose RTLD_NEXT it is.
asm(R"(
  .text
  .globl dlsym
  .type dlsym, @function
dlsym:
  endbr64
  pushq %rdi
  pushq %rsi
  subq $8, %rsp
  movq 24(%rsp), %rdx
  call convtune_replacement
  addq $8, %rsp
  popq %rsi
  popq %rdi
  testq %rax, %rax
  jne 1f
  jmp *convtune_real_dlsym(%rip)
1:
  ret
  .size dlsym, .-dlsym
)");
#endif  // __x86_64__

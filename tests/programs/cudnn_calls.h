/* The cuDNN functions that the test programs call: linked, or, with
 * RAW_CALLS_DLSYM, looked up in a handle as programs do that load cuDNN, by dlsym or
 * by RAW_LOOK_UP. */
#ifndef TESTS_PROGRAMS_CUDNN_CALLS_H_
#define TESTS_PROGRAMS_CUDNN_CALLS_H_

#include <cudnn.h>

#ifdef RAW_CALLS_DLSYM
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#ifndef RAW_LOOK_UP
#define RAW_LOOK_UP dlsym
#endif
void* RAW_LOOK_UP(void* handle, const char* name);
__attribute__((unused)) static void* cudnn_symbol(const char* name) {
  static void* handle;
  if (handle == NULL) {
    handle = dlopen("libcudnn.so.9", RTLD_NOW | RTLD_LOCAL);
  }
  void* symbol = handle == NULL ? NULL : RAW_LOOK_UP(handle, name);
  if (symbol == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    exit(2);
  }
  return symbol;
}
#define CUDNN_CALL(name)                                  \
  (*({                                                    \
    static __typeof__(&name) function;                    \
    if (function == NULL) function = cudnn_symbol(#name); \
    &function;                                            \
  }))
#else
#define CUDNN_CALL(name) name
#endif

#endif

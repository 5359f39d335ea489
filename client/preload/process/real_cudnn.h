// The functions of the cuDNN that the program itself would have called.
#pragma once

#include <cudnn.h>
#include <string.h>

namespace convtune::preload::process {

// GetVersion and GetStream are null where the library has no such function; the
// others give NOT_INITIALIZED then.
struct RealCudnn {
  decltype(&cudnnGetVersion) GetVersion;
  decltype(&cudnnBackendCreateDescriptor) Create;
  decltype(&cudnnBackendDestroyDescriptor) Destroy;
  decltype(&cudnnBackendSetAttribute) SetAttribute;
  decltype(&cudnnBackendGetAttribute) GetAttribute;
  decltype(&cudnnBackendFinalize) Finalize;
  decltype(&cudnnBackendExecute) Execute;
  decltype(&cudnnGetStream) GetStream;
};

// The functions behind libcudnn.so.9, or behind libcudnn_graph.so.9 where a
// program loaded that alone. RTLD_NEXT is no use: a library that was loaded
// RTLD_LOCAL is not in its scope.
// Thread-safe; the first call resolves.
const RealCudnn& Real();
// The functions of libcudnn_graph.so.9: what cuDNN's own libraries call.
const RealCudnn& RealGraph();

// The dlsym that a program would have called: the next preloaded library's, if one has its own,
// else the C library's. By its name a call finds the hook. Thread-safe.
using Dlsym = void* (*)(void* handle, const char* name);
Dlsym RealDlsym();

// True if the hook of that name goes on to this function: not to that of another cuDNN of the
// process, such as a libcudnn.so.8. Thread-safe.
bool IsReal(const char* name, const void* function);

// A function of libcudnn.so.9 (or its part that has it) by name; null if there
// is none.
void* RealSymbol(const char* name);

// True if the address lies in one of cuDNN's own libraries, whose calls are
// never redirected. Thread-safe.
bool IsCudnn(const void* return_address);
// The same, and remembers nothing: for libraries that may be unloaded.
bool IsCudnnNow(const void* return_address);

// Path of the loaded cuDNN library; empty if it is not known.
const char* CudnnPath();

inline const char* BaseName(const char* path) {
  const char* slash = strrchr(path, '/');
  return slash == nullptr ? path : slash + 1;
}

inline bool StartsWith(const char* text, const char* prefix) {
  return strncmp(text, prefix, strlen(prefix)) == 0;
}

// True for cuDNN's own libraries, those of versions to come included; a build
// of cudnn-frontend is a program.
inline bool IsCudnnLibrary(const char* path) {
  const char* name = BaseName(path);
  return StartsWith(name, "libcudnn") && !StartsWith(name, "libcudnn_frontend");
}

}  // namespace convtune::preload::process

#pragma once

#include <string.h>

namespace convtune::preload::process {

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

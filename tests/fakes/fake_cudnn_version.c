/* A libcudnn.so.9 that says which version it is, and does nothing else. */
#include <stddef.h>
#include <stdlib.h>

size_t cudnnGetVersion(void) {
  const char* version = getenv("FAKE_CUDNN_VERSION");
  return version == NULL ? 91200 : (size_t)atol(version);
}

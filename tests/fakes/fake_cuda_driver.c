/* A libcuda.so.1 with one H200 and a current context, for tests of programs
 * that use a GPU's legacy functions. With FAKE_GPUS, a letter for each GPU, there
 * is no context but that of a thread that called FakeSetContext: h is an H200, l
 * an L4. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char* Gpus(void) {
  const char* gpus = getenv("FAKE_GPUS");
  return gpus == NULL ? "h" : gpus;
}

static __thread int context = -1;

void FakeSetContext(int device) { context = device; }

int cuCtxGetDevice(int* device) {
  *device = context < 0 ? 0 : context;
  if (context >= 0) return 0;
  return getenv("FAKE_GPUS") == NULL ? 0 : 201;
}

int cuDeviceGetCount(int* count) {
  *count = (int)strlen(Gpus());
  return 0;
}

int cuDeviceGet(int* device, int ordinal) {
  *device = ordinal;
  return ordinal < (int)strlen(Gpus()) ? 0 : 101;
}

int cuDeviceGetName(char* name, int size, int device) {
  snprintf(name, (size_t)size, "NVIDIA %s", Gpus()[device] == 'l' ? "L4" : "H200");
  return 0;
}

int cuDeviceGetAttribute(int* value, int attribute, int device) {
  (void)device;
  *value = attribute == 16 ? 132 : attribute == 75 ? 9 : 0;
  return 0;
}

/* The stream is captured into a graph at those calls that FAKE_CAPTURE names,
 * "FIRST-LAST" counted from 1, one for each execution. */
int cuStreamIsCapturing(void* stream, int* status) {
  static long calls;
  long first = 0, last = -1;
  const char* range = getenv("FAKE_CAPTURE");
  (void)stream;
  if (range != NULL) sscanf(range, "%ld-%ld", &first, &last);
  ++calls;
  *status = calls >= first && calls <= last ? 1 : 0;
  return 0;
}

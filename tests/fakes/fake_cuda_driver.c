/* A libcuda.so.1 with one H200 and a current context, for tests of programs
 * that use a GPU's legacy functions. */
#include <stdio.h>

int cuCtxGetDevice(int* device) {
  *device = 0;
  return 0;
}

int cuDeviceGet(int* device, int ordinal) {
  *device = ordinal;
  return ordinal == 0 ? 0 : 101;
}

int cuDeviceGetName(char* name, int size, int device) {
  (void)device;
  snprintf(name, (size_t)size, "NVIDIA H200");
  return 0;
}

int cuDeviceGetAttribute(int* value, int attribute, int device) {
  (void)device;
  *value = attribute == 16 ? 132 : attribute == 75 ? 9 : 0;
  return 0;
}

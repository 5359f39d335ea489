#include <stdio.h>
#include <stdlib.h>

/* A libcuda.so.1 of a driver for CUDA 11.8: too old for every worker. It says what it finds
 * in the environment, as a driver reads it when it is first called. */
int cuDriverGetVersion(int* version) {
  if (getenv("CUDA_DISABLE_PERF_BOOST") != NULL) fprintf(stderr, "clocks are not kept up\n");
  *version = 11080;
  return 0;
}

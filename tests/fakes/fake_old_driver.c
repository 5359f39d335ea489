/* A libcuda.so.1 of a driver for CUDA 11.8: too old for every worker. */
int cuDriverGetVersion(int* version) {
  *version = 11080;
  return 0;
}

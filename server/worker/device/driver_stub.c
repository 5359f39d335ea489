// A libcuda.so.1 for a machine without a driver, of which cuDNN needs some since
// 9.27: one that has no device. It has what cuDNN's libraries link, and what they
// look up, since they print a line for each function that they miss. The CUDA
// runtime asks for more, finds nothing, and takes the driver for too old.
// cuDriverGetVersion is left out on purpose, although cuDNN prints a line about it for each
// problem: where no function is missing, cuDNN's FALLBACK lists an engine whose plans it compiles,
// for seconds each.
// The worker carries this library and loads it: see deviceless_backend.cc.

// CUDA_ERROR_NO_DEVICE.
enum { kNoDevice = 100 };

// The parameters do not matter: none is looked at.
#define ANSWER_NO_DEVICE(function) \
  int function(void);              \
  int function(void) { return kNoDevice; }

ANSWER_NO_DEVICE(cuCtxGetCurrent)
ANSWER_NO_DEVICE(cuCtxGetLimit)
ANSWER_NO_DEVICE(cuCtxPopCurrent)
ANSWER_NO_DEVICE(cuCtxPushCurrent)
ANSWER_NO_DEVICE(cuDeviceGet)
ANSWER_NO_DEVICE(cuDeviceGetCount)
ANSWER_NO_DEVICE(cuGetErrorName)
ANSWER_NO_DEVICE(cuGetErrorString)
ANSWER_NO_DEVICE(cuInit)
ANSWER_NO_DEVICE(cuKernelGetAttribute)
ANSWER_NO_DEVICE(cuKernelGetFunction)
ANSWER_NO_DEVICE(cuKernelSetAttribute)
ANSWER_NO_DEVICE(cuLaunchCooperativeKernel)
ANSWER_NO_DEVICE(cuLaunchKernelEx)
ANSWER_NO_DEVICE(cuLibraryGetKernel)
ANSWER_NO_DEVICE(cuLibraryLoadData)
ANSWER_NO_DEVICE(cuLibraryLoadFromFile)
ANSWER_NO_DEVICE(cuLibraryUnload)
ANSWER_NO_DEVICE(cuLinkAddData)
ANSWER_NO_DEVICE(cuLinkComplete)
ANSWER_NO_DEVICE(cuLinkCreate)
ANSWER_NO_DEVICE(cuLinkDestroy)
ANSWER_NO_DEVICE(cuModuleLoadData)
ANSWER_NO_DEVICE(cuOccupancyMaxPotentialClusterSize)
ANSWER_NO_DEVICE(cuStreamGetCtx)
ANSWER_NO_DEVICE(cuTensorMapEncodeIm2col)
ANSWER_NO_DEVICE(cuTensorMapEncodeTiled)
// The simulated GPU's libcuda.so.1 is this one with these three of its own.
#ifndef CONVTUNE_SIMULATED_DRIVER
ANSWER_NO_DEVICE(cuLaunchKernel)
ANSWER_NO_DEVICE(cuModuleGetFunction)
ANSWER_NO_DEVICE(cuModuleUnload)
#endif

// The nine legacy functions that are put in front of cuDNN's own.
#include <cudnn.h>
#include <stdint.h>

#include <algorithm>

#include "client/preload/legacy.h"
#include "client/preload/real_cudnn.h"
#include "client/preload/state.h"

namespace convtune::preload {
namespace {

// Serves the call, or makes the real one and learns from it.
template <typename Real>
cudnnStatus_t Run(const void* caller, LegacyCall call, const Real& real) {
  Problem* problem = nullptr;
  if (IsCudnn(caller) || !GetState().active) {
    return real(call.requested, call.returned, call.results);
  }
  int64_t limit = GetState().settings.max_workspace;
  if (limit >= 0 && (call.returned == nullptr || call.results == nullptr || call.requested < 1 ||
                     Killed(GetState()))) {
    limit = -1;
  }
  if (limit >= 0) {
    call.workspace_limit = std::min(call.workspace_limit, static_cast<size_t>(limit));
  }
  if (ServeLegacy(call, &problem)) {
    return CUDNN_STATUS_SUCCESS;
  }
  if (limit < 0) {
    const cudnnStatus_t status = real(call.requested, call.returned, call.results);
    if (status == CUDNN_STATUS_SUCCESS) {
      LearnLegacy(call, problem);
    }
    return status;
  }
  // All that there is, of which the program gets what it asked for.
  constexpr int kMost = 32;
  LegacyResult all[kMost] = {};
  int count = 0;
  const cudnnStatus_t status = real(kMost, &count, all);
  if (status != CUDNN_STATUS_SUCCESS) {
    return status;
  }
  LegacyCall whole = call;
  whole.results = all;
  whole.returned = &count;
  LearnLegacy(whole, problem);
  *call.returned = LimitLegacy(limit, count, call.requested, all);
  std::copy_n(all, *call.returned, call.results);
  return status;
}

}  // namespace
}  // namespace convtune::preload

// NOLINTBEGIN(google-build-using-namespace): the functions are cuDNN's, in the
// global namespace, and what they call is ours.

// One function: its arguments and their names as cuDNN declares them, the
// number of the operation, whether it times, the names of x, w and y, the limit
// on the workspace, and the arguments again as the real function gets them, with
// `asked`, `got` and `given` for the results.
#define CONVTUNE_LEGACY_HOOK(name, operation, timed, x, w, y, limit, arguments, values)         \
  extern "C" __attribute__((visibility("default"))) cudnnStatus_t name arguments {              \
    using namespace convtune::preload;                                                          \
    static constinit Function<decltype(&name)> real(#name, kMainLibrary);                       \
    const LegacyCall call = {                                                                   \
        operation, timed, handle,    x,        w,                                               \
        convDesc,  y,     requested, returned, reinterpret_cast<LegacyResult*>(results),        \
        limit};                                                                                 \
    return Run(__builtin_return_address(0), call, [&](int asked, int* got, LegacyResult* all) { \
      const auto given = reinterpret_cast<decltype(results)>(all);                              \
      return real values;                                                                       \
    });                                                                                         \
  }

// The three functions of an operation; Get_v7 and Find have the same arguments.
#define CONVTUNE_LEGACY_HOOKS(direction, operation, x, w, y, arguments, values, arguments_ex,   \
                              values_ex)                                                        \
  CONVTUNE_LEGACY_HOOK(cudnnGetConvolution##direction##Algorithm_v7, operation, false, x, w, y, \
                       SIZE_MAX, arguments, values)                                             \
  CONVTUNE_LEGACY_HOOK(cudnnFindConvolution##direction##Algorithm, operation, true, x, w, y,    \
                       SIZE_MAX, arguments, values)                                             \
  CONVTUNE_LEGACY_HOOK(cudnnFindConvolution##direction##AlgorithmEx, operation, true, x, w, y,  \
                       bytes, arguments_ex, values_ex)

#define CONVTUNE_RESULTS(perf) const int requested, int *returned, perf *results

CONVTUNE_LEGACY_HOOKS(
    Forward, 1, xDesc, wDesc, yDesc,
    (cudnnHandle_t handle, const cudnnTensorDescriptor_t xDesc, const cudnnFilterDescriptor_t wDesc,
     const cudnnConvolutionDescriptor_t convDesc, const cudnnTensorDescriptor_t yDesc,
     CONVTUNE_RESULTS(cudnnConvolutionFwdAlgoPerf_t)),
    (handle, xDesc, wDesc, convDesc, yDesc, asked, got, given),
    (cudnnHandle_t handle, const cudnnTensorDescriptor_t xDesc, const void* x,
     const cudnnFilterDescriptor_t wDesc, const void* w,
     const cudnnConvolutionDescriptor_t convDesc, const cudnnTensorDescriptor_t yDesc, void* y,
     CONVTUNE_RESULTS(cudnnConvolutionFwdAlgoPerf_t), void* workspace, size_t bytes),
    (handle, xDesc, x, wDesc, w, convDesc, yDesc, y, asked, got, given, workspace, bytes))

CONVTUNE_LEGACY_HOOKS(
    BackwardData, 2, dxDesc, wDesc, dyDesc,
    (cudnnHandle_t handle, const cudnnFilterDescriptor_t wDesc,
     const cudnnTensorDescriptor_t dyDesc, const cudnnConvolutionDescriptor_t convDesc,
     const cudnnTensorDescriptor_t dxDesc, CONVTUNE_RESULTS(cudnnConvolutionBwdDataAlgoPerf_t)),
    (handle, wDesc, dyDesc, convDesc, dxDesc, asked, got, given),
    (cudnnHandle_t handle, const cudnnFilterDescriptor_t wDesc, const void* w,
     const cudnnTensorDescriptor_t dyDesc, const void* dy,
     const cudnnConvolutionDescriptor_t convDesc, const cudnnTensorDescriptor_t dxDesc, void* dx,
     CONVTUNE_RESULTS(cudnnConvolutionBwdDataAlgoPerf_t), void* workspace, size_t bytes),
    (handle, wDesc, w, dyDesc, dy, convDesc, dxDesc, dx, asked, got, given, workspace, bytes))

CONVTUNE_LEGACY_HOOKS(
    BackwardFilter, 3, xDesc, dwDesc, dyDesc,
    (cudnnHandle_t handle, const cudnnTensorDescriptor_t xDesc,
     const cudnnTensorDescriptor_t dyDesc, const cudnnConvolutionDescriptor_t convDesc,
     const cudnnFilterDescriptor_t dwDesc, CONVTUNE_RESULTS(cudnnConvolutionBwdFilterAlgoPerf_t)),
    (handle, xDesc, dyDesc, convDesc, dwDesc, asked, got, given),
    (cudnnHandle_t handle, const cudnnTensorDescriptor_t xDesc, const void* x,
     const cudnnTensorDescriptor_t dyDesc, const void* y,
     const cudnnConvolutionDescriptor_t convDesc, const cudnnFilterDescriptor_t dwDesc, void* dw,
     CONVTUNE_RESULTS(cudnnConvolutionBwdFilterAlgoPerf_t), void* workspace, size_t bytes),
    (handle, xDesc, x, dyDesc, y, convDesc, dwDesc, dw, asked, got, given, workspace, bytes))

// NOLINTEND(google-build-using-namespace)

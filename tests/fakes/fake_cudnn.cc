// A libcudnn.so.9 for tests on machines without a GPU. The backend API is the
// real one's, but for execution, which does nothing; the legacy API, which a
// GPU is needed for, gives fixed answers. Each search prints "search" on stderr.
// No plan is finalised of the engines whose numbers FAKE_UNBUILT has, such as "22,34".
#include <cudnn.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FAKE extern "C" __attribute__((visibility("default")))

namespace {

template <typename T>
T Graph(const char* name, T /*type*/) {
  static void* handle = dlopen(FAKE_CUDNN_REAL_FOLDER "/libcudnn_graph.so.9", RTLD_NOW);
  void* symbol = handle == nullptr ? nullptr : dlsym(handle, name);
  if (symbol == nullptr) {
    fprintf(stderr, "%s\n", dlerror());
    abort();
  }
  return reinterpret_cast<T>(symbol);
}

struct Tensor {
  cudnnDataType_t type;
  cudnnTensorFormat_t format;
  int dims[4];
};

struct Convolution {
  cudnnMathType_t math;
  cudnnDataType_t compute;
  int pad[2], stride[2], dilation[2];
};

Tensor* AsTensor(const void* descriptor) {
  return static_cast<Tensor*>(const_cast<void*>(descriptor));
}

// An answer: algorithm, milliseconds, bytes, determinism, math type.
struct Answer {
  int algorithm;
  float time;
  size_t memory;
  cudnnDeterminism_t determinism;
  cudnnMathType_t math;
};

// In the order of Find; Get_v7 gives them in another one.
constexpr Answer kAnswers[] = {
    {1, 0.5F, 1 << 20, CUDNN_DETERMINISTIC, CUDNN_TENSOR_OP_MATH},
    {6, 0.75F, 1 << 22, CUDNN_DETERMINISTIC, CUDNN_DEFAULT_MATH},
    {0, 1.0F, 0, CUDNN_DETERMINISTIC, CUDNN_TENSOR_OP_MATH},
    {3, 2.0F, 1 << 10, CUDNN_NON_DETERMINISTIC, CUDNN_TENSOR_OP_MATH},
};
constexpr int kAnswerCount = 4;
constexpr int kHeuristicOrder[kAnswerCount] = {0, 2, 1, 3};

size_t WorkspaceOf(int algorithm) {
  for (const Answer& answer : kAnswers) {
    if (answer.algorithm == algorithm) {
      return answer.memory;
    }
  }
  return algorithm == 2 ? 4096 : 0;
}

template <typename Perf>
cudnnStatus_t Fill(bool search, size_t limit, int requested, int* returned, Perf* results) {
  if (requested < 1 || returned == nullptr || results == nullptr) {
    return CUDNN_STATUS_BAD_PARAM;
  }
  if (search) {
    fprintf(stderr, "search\n");
  }
  int count = 0;
  for (int i = 0; i < kAnswerCount && count < requested; ++i) {
    const Answer& answer = kAnswers[search ? i : kHeuristicOrder[i]];
    if (answer.memory > limit) {
      continue;
    }
    Perf& result = results[count++];
    memset(&result, 0, sizeof result);
    result.algo = static_cast<decltype(result.algo)>(answer.algorithm);
    result.time = search ? answer.time : -1.0F;
    result.memory = answer.memory;
    result.determinism = answer.determinism;
    result.mathType = answer.math;
  }
  *returned = count;
  return CUDNN_STATUS_SUCCESS;
}

// Algorithm 7 is one that this problem does not support.
cudnnStatus_t Workspace(int algorithm, size_t* bytes) {
  *bytes = WorkspaceOf(algorithm);
  return algorithm == 7 ? CUDNN_STATUS_NOT_SUPPORTED : CUDNN_STATUS_SUCCESS;
}

}  // namespace

#define FORWARD(name, arguments, values) \
  FAKE cudnnStatus_t name arguments { return Graph(#name, &name) values; }

FORWARD(cudnnBackendCreateDescriptor,
        (cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t* descriptor),
        (type, descriptor))
FORWARD(cudnnBackendDestroyDescriptor, (cudnnBackendDescriptor_t descriptor), (descriptor))
FORWARD(cudnnBackendGetAttribute,
        (cudnnBackendDescriptor_t const descriptor, cudnnBackendAttributeName_t name,
         cudnnBackendAttributeType_t type, int64_t requested, int64_t* count, void* values),
        (descriptor, name, type, requested, count, values))

// The plan of an engine that FAKE_UNBUILT has.
static thread_local cudnnBackendDescriptor_t unbuilt;

static bool IsUnbuilt(cudnnBackendDescriptor_t config) {
  const char* engines = getenv("FAKE_UNBUILT");
  cudnnBackendDescriptor_t engine = nullptr;
  int64_t index = -1, got = 0;
  if (engines == nullptr || cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR,
                                                         &engine) != CUDNN_STATUS_SUCCESS) {
    return false;
  }
  cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                           &got, &engine);
  cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &got,
                           &index);
  cudnnBackendDestroyDescriptor(engine);
  while (*engines != '\0') {
    char* end = nullptr;
    if (strtol(engines, &end, 10) == index) {
      return true;
    }
    engines = *end == ',' ? end + 1 : "";
  }
  return false;
}

FAKE cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor,
                                            cudnnBackendAttributeName_t name,
                                            cudnnBackendAttributeType_t type, int64_t count,
                                            const void* values) {
  if (name == CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG) {
    const bool is = IsUnbuilt(*static_cast<const cudnnBackendDescriptor_t*>(values));
    unbuilt = is ? descriptor : nullptr;
  }
  return Graph("cudnnBackendSetAttribute", &cudnnBackendSetAttribute)(descriptor, name, type, count,
                                                                      values);
}

FAKE cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
  if (unbuilt != nullptr && descriptor == unbuilt) {
    return CUDNN_STATUS_NOT_SUPPORTED;
  }
  return Graph("cudnnBackendFinalize", &cudnnBackendFinalize)(descriptor);
}

FAKE cudnnStatus_t cudnnBackendExecute(cudnnHandle_t, cudnnBackendDescriptor_t,
                                       cudnnBackendDescriptor_t) {
  return CUDNN_STATUS_SUCCESS;
}

FAKE cudnnStatus_t cudnnGetStream(cudnnHandle_t, cudaStream_t* stream) {
  *stream = nullptr;
  return CUDNN_STATUS_SUCCESS;
}

FAKE size_t cudnnGetVersion() { return CUDNN_VERSION; }
FAKE cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  static char place;
  *handle = reinterpret_cast<cudnnHandle_t>(&place);
  return CUDNN_STATUS_SUCCESS;
}

template <typename T, typename D>
cudnnStatus_t New(D* descriptor) {
  *descriptor = reinterpret_cast<D>(calloc(1, sizeof(T)));
  return CUDNN_STATUS_SUCCESS;
}
FAKE cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t* d) {
  return New<Tensor>(d);
}
FAKE cudnnStatus_t cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t* d) {
  return New<Tensor>(d);
}
FAKE cudnnStatus_t cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t* d) {
  return New<Convolution>(d);
}

FAKE cudnnStatus_t cudnnSetTensor4dDescriptor(cudnnTensorDescriptor_t d, cudnnTensorFormat_t format,
                                              cudnnDataType_t type, int n, int c, int h, int w) {
  *AsTensor(d) = {type, format, {n, c, h, w}};
  return CUDNN_STATUS_SUCCESS;
}
FAKE cudnnStatus_t cudnnSetFilter4dDescriptor(cudnnFilterDescriptor_t d, cudnnDataType_t type,
                                              cudnnTensorFormat_t format, int k, int c, int r,
                                              int s) {
  *AsTensor(d) = {type, format, {k, c, r, s}};
  return CUDNN_STATUS_SUCCESS;
}
FAKE cudnnStatus_t cudnnSetConvolutionNdDescriptor(cudnnConvolutionDescriptor_t d, int rank,
                                                   const int* pad, const int* stride,
                                                   const int* dilation, cudnnConvolutionMode_t,
                                                   cudnnDataType_t compute) {
  auto* conv = reinterpret_cast<Convolution*>(d);
  conv->compute = compute;
  for (int i = 0; i < rank && i < 2; ++i) {
    conv->pad[i] = pad[i];
    conv->stride[i] = stride[i];
    conv->dilation[i] = dilation[i];
  }
  return CUDNN_STATUS_SUCCESS;
}
FAKE cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t d,
                                               cudnnMathType_t math) {
  reinterpret_cast<Convolution*>(d)->math = math;
  return CUDNN_STATUS_SUCCESS;
}
FAKE cudnnStatus_t cudnnGetConvolutionMathType(cudnnConvolutionDescriptor_t d,
                                               cudnnMathType_t* math) {
  *math = reinterpret_cast<Convolution*>(d)->math;
  return CUDNN_STATUS_SUCCESS;
}
FAKE cudnnStatus_t cudnnGetConvolutionGroupCount(cudnnConvolutionDescriptor_t, int* groups) {
  *groups = 1;
  return CUDNN_STATUS_SUCCESS;
}

FAKE cudnnStatus_t cudnnGetTensorNdDescriptor(const cudnnTensorDescriptor_t d, int,
                                              cudnnDataType_t* type, int* rank, int* dims,
                                              int* strides) {
  const Tensor& t = *AsTensor(d);
  *type = t.type;
  *rank = 4;
  memcpy(dims, t.dims, sizeof t.dims);
  const int c = t.dims[1], h = t.dims[2], w = t.dims[3];
  const bool last = t.format == CUDNN_TENSOR_NHWC;
  strides[0] = c * h * w;
  strides[1] = last ? 1 : h * w;
  strides[2] = last ? w * c : w;
  strides[3] = last ? c : 1;
  return CUDNN_STATUS_SUCCESS;
}
FAKE cudnnStatus_t cudnnGetFilterNdDescriptor(const cudnnFilterDescriptor_t d, int,
                                              cudnnDataType_t* type, cudnnTensorFormat_t* format,
                                              int* rank, int* dims) {
  const Tensor& t = *AsTensor(d);
  *type = t.type;
  *format = t.format;
  *rank = 4;
  memcpy(dims, t.dims, sizeof t.dims);
  return CUDNN_STATUS_SUCCESS;
}
FAKE cudnnStatus_t cudnnGetConvolutionNdDescriptor(const cudnnConvolutionDescriptor_t d, int,
                                                   int* rank, int* pad, int* stride, int* dilation,
                                                   cudnnConvolutionMode_t* mode,
                                                   cudnnDataType_t* compute) {
  const auto* conv = reinterpret_cast<const Convolution*>(d);
  *rank = 2;
  *mode = CUDNN_CROSS_CORRELATION;
  *compute = conv->compute;
  memcpy(pad, conv->pad, sizeof conv->pad);
  memcpy(stride, conv->stride, sizeof conv->stride);
  memcpy(dilation, conv->dilation, sizeof conv->dilation);
  return CUDNN_STATUS_SUCCESS;
}

// The functions of one operation: `a` and `b` are the types of its first two
// descriptors, `c` that of the last.
#define OPERATION(direction, perf, algo, a, b, c)                                                \
  FAKE cudnnStatus_t cudnnGetConvolution##direction##WorkspaceSize(                              \
      cudnnHandle_t, const a, const b, const cudnnConvolutionDescriptor_t, const c, algo number, \
      size_t* bytes) {                                                                           \
    return Workspace(number, bytes);                                                             \
  }                                                                                              \
  FAKE cudnnStatus_t cudnnGetConvolution##direction##Algorithm_v7(                               \
      cudnnHandle_t, const a, const b, const cudnnConvolutionDescriptor_t, const c,              \
      const int requested, int* returned, perf* results) {                                       \
    return Fill(false, SIZE_MAX, requested, returned, results);                                  \
  }                                                                                              \
  FAKE cudnnStatus_t cudnnFindConvolution##direction##Algorithm(                                 \
      cudnnHandle_t, const a, const b, const cudnnConvolutionDescriptor_t, const c,              \
      const int requested, int* returned, perf* results) {                                       \
    return Fill(true, SIZE_MAX, requested, returned, results);                                   \
  }                                                                                              \
  FAKE cudnnStatus_t cudnnFindConvolution##direction##AlgorithmEx(                               \
      cudnnHandle_t, const a, const void*, const b, const void*,                                 \
      const cudnnConvolutionDescriptor_t, const c, void*, const int requested, int* returned,    \
      perf* results, void*, size_t limit) {                                                      \
    return Fill(true, limit, requested, returned, results);                                      \
  }

OPERATION(Forward, cudnnConvolutionFwdAlgoPerf_t, cudnnConvolutionFwdAlgo_t,
          cudnnTensorDescriptor_t, cudnnFilterDescriptor_t, cudnnTensorDescriptor_t)
OPERATION(BackwardData, cudnnConvolutionBwdDataAlgoPerf_t, cudnnConvolutionBwdDataAlgo_t,
          cudnnFilterDescriptor_t, cudnnTensorDescriptor_t, cudnnTensorDescriptor_t)
OPERATION(BackwardFilter, cudnnConvolutionBwdFilterAlgoPerf_t, cudnnConvolutionBwdFilterAlgo_t,
          cudnnTensorDescriptor_t, cudnnTensorDescriptor_t, cudnnFilterDescriptor_t)

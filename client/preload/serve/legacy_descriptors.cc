// What legacy descriptors say, asked of cuDNN.
#include "client/preload/process/once.h"
#include "client/preload/process/real_cudnn.h"
#include "client/preload/serve/legacy.h"
#include "client/preload/shadow/graph_key.h"
#include "proto/model/problem/tensor_rules.h"

namespace convtune::preload::serve {
namespace {

struct Readers {
  decltype(&cudnnGetTensorNdDescriptor) Tensor;
  decltype(&cudnnGetFilterNdDescriptor) Filter;
  decltype(&cudnnGetConvolutionNdDescriptor) Convolution;
  decltype(&cudnnGetConvolutionGroupCount) Groups;
  decltype(&cudnnGetConvolutionMathType) Math;
  decltype(&cudnnGetConvolutionForwardWorkspaceSize) FwdWorkspace;
  decltype(&cudnnGetConvolutionBackwardDataWorkspaceSize) BwdDataWorkspace;
  decltype(&cudnnGetConvolutionBackwardFilterWorkspaceSize) BwdFilterWorkspace;
  decltype(&cudnnGetConvolutionForwardAlgorithm_v7) Fwd;
  decltype(&cudnnGetConvolutionBackwardDataAlgorithm_v7) BwdData;
  decltype(&cudnnGetConvolutionBackwardFilterAlgorithm_v7) BwdFilter;
};

template <typename T>
bool Fill(const char* name, T* function) {
  *function = reinterpret_cast<T>(process::RealSymbol(name));
  return *function != nullptr;
}

bool Resolve(Readers* r) {
  return Fill("cudnnGetTensorNdDescriptor", &r->Tensor) &&
         Fill("cudnnGetFilterNdDescriptor", &r->Filter) &&
         Fill("cudnnGetConvolutionNdDescriptor", &r->Convolution) &&
         Fill("cudnnGetConvolutionGroupCount", &r->Groups) &&
         Fill("cudnnGetConvolutionMathType", &r->Math) &&
         Fill("cudnnGetConvolutionForwardWorkspaceSize", &r->FwdWorkspace) &&
         Fill("cudnnGetConvolutionBackwardDataWorkspaceSize", &r->BwdDataWorkspace) &&
         Fill("cudnnGetConvolutionBackwardFilterWorkspaceSize", &r->BwdFilterWorkspace) &&
         Fill("cudnnGetConvolutionForwardAlgorithm_v7", &r->Fwd) &&
         Fill("cudnnGetConvolutionBackwardDataAlgorithm_v7", &r->BwdData) &&
         Fill("cudnnGetConvolutionBackwardFilterAlgorithm_v7", &r->BwdFilter);
}

// Null if the library lacks one of them.
const Readers* GetReaders() {
  static process::Once<Readers> readers;
  return readers.Get(Resolve);
}

constexpr int kAsked = 8;  // CUDNN_DIM_MAX

void Widen(const int* from, int count, int64_t* to) {
  for (int i = 0; i < count; ++i) {
    to[i] = from[i];
  }
}

bool ReadTensor(const Readers& r, cudnnTensorDescriptor_t descriptor,
                shadow::TensorShadow* tensor) {
  cudnnDataType_t type = {};
  int dims[kAsked] = {};
  int strides[kAsked] = {};
  if (r.Tensor(descriptor, kAsked, &type, &tensor->rank, dims, strides) != CUDNN_STATUS_SUCCESS ||
      tensor->rank < 4 || tensor->rank > snapshot::kMaxRank) {
    return false;
  }
  tensor->type = type;
  tensor->alignment = 16;
  Widen(dims, tensor->rank, tensor->dims);
  Widen(strides, tensor->rank, tensor->strides);
  return true;
}

bool ReadFilter(const Readers& r, cudnnFilterDescriptor_t descriptor,
                shadow::TensorShadow* filter) {
  cudnnDataType_t type = {};
  cudnnTensorFormat_t layout = {};
  int dims[kAsked] = {};
  if (r.Filter(descriptor, kAsked, &type, &layout, &filter->rank, dims) != CUDNN_STATUS_SUCCESS ||
      filter->rank < 4 || filter->rank > snapshot::kMaxRank ||
      (layout != CUDNN_TENSOR_NCHW && layout != CUDNN_TENSOR_NHWC)) {
    return false;
  }
  filter->type = type;
  filter->alignment = 16;
  Widen(dims, filter->rank, filter->dims);
  if (!snapshot::key_internal::DimsInRange(filter->dims, filter->rank)) {
    return false;
  }
  PackedStrides(filter->dims, filter->rank, layout == CUDNN_TENSOR_NHWC, filter->strides);
  return true;
}

bool ReadConvolution(const Readers& r, cudnnConvolutionDescriptor_t descriptor,
                     shadow::ConvolutionShadow* conv) {
  cudnnConvolutionMode_t mode = {};
  cudnnDataType_t compute = {};
  int pad[kAsked] = {};
  int stride[kAsked] = {};
  int dilation[kAsked] = {};
  if (r.Convolution(descriptor, kAsked - 2, &conv->spatial, pad, stride, dilation, &mode,
                    &compute) != CUDNN_STATUS_SUCCESS ||
      conv->spatial < 2 || conv->spatial > snapshot::kMaxSpatial) {
    return false;
  }
  conv->mode = mode;
  conv->compute = compute;
  Widen(pad, conv->spatial, conv->pad_low);
  Widen(pad, conv->spatial, conv->pad_high);
  Widen(stride, conv->spatial, conv->strides);
  Widen(dilation, conv->spatial, conv->dilations);
  return true;
}

}  // namespace

bool MakeLegacyKey(const LegacyCall& call, snapshot::ProblemKey* key, cudnnMathType_t* math) {
  const Readers* r = GetReaders();
  shadow::OperationShadow operation = {};
  operation.convolution = static_cast<uint8_t>(call.operation);
  int groups = 0;
  if (r == nullptr || !ReadTensor(*r, call.x, &operation.x) ||
      !ReadFilter(*r, call.w, &operation.w) || !ReadTensor(*r, call.y, &operation.y) ||
      !ReadConvolution(*r, call.convolution, &operation.conv) ||
      r->Groups(call.convolution, &groups) != CUDNN_STATUS_SUCCESS ||
      r->Math(call.convolution, math) != CUDNN_STATUS_SUCCESS) {
    return false;
  }
  const shadow::OperationShadow* operations[] = {&operation};
  return shadow::MakeKey(operations, 1, key) && key->groups == groups;
}

bool LegacyWorkspace(const LegacyCall& call, int algorithm, size_t* bytes) {
  const Readers* r = GetReaders();
  if (r == nullptr) {
    return false;
  }
  switch (call.operation) {
    case 1:
      return r->FwdWorkspace(call.handle, call.x, call.w, call.convolution, call.y,
                             static_cast<cudnnConvolutionFwdAlgo_t>(algorithm),
                             bytes) == CUDNN_STATUS_SUCCESS;
    case 2:
      return r->BwdDataWorkspace(call.handle, call.w, call.y, call.convolution, call.x,
                                 static_cast<cudnnConvolutionBwdDataAlgo_t>(algorithm),
                                 bytes) == CUDNN_STATUS_SUCCESS;
    default:
      return r->BwdFilterWorkspace(call.handle, call.x, call.y, call.convolution, call.w,
                                   static_cast<cudnnConvolutionBwdFilterAlgo_t>(algorithm),
                                   bytes) == CUDNN_STATUS_SUCCESS;
  }
}

int LegacyHeuristics(const LegacyCall& call, int requested, LegacyResult* results) {
  const Readers* r = GetReaders();
  int returned = 0;
  cudnnStatus_t status = CUDNN_STATUS_NOT_SUPPORTED;
  if (r == nullptr) {
    return 0;
  }
  switch (call.operation) {
    case 1:
      status = r->Fwd(call.handle, call.x, call.w, call.convolution, call.y, requested, &returned,
                      reinterpret_cast<cudnnConvolutionFwdAlgoPerf_t*>(results));
      break;
    case 2:
      status = r->BwdData(call.handle, call.w, call.y, call.convolution, call.x, requested,
                          &returned, reinterpret_cast<cudnnConvolutionBwdDataAlgoPerf_t*>(results));
      break;
    default:
      status =
          r->BwdFilter(call.handle, call.x, call.y, call.convolution, call.w, requested, &returned,
                       reinterpret_cast<cudnnConvolutionBwdFilterAlgoPerf_t*>(results));
  }
  return status == CUDNN_STATUS_SUCCESS ? returned : 0;
}

}  // namespace convtune::preload::serve

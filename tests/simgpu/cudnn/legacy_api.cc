// cuDNN's legacy API of convolutions above the simulated GPU. Descriptors are the real library's.
#include <cudnn.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/model/tuning/note_rules.h"
#include "tests/simgpu/cudnn/cost_model.h"
#include "tests/simgpu/cudnn/element.h"
#include "tests/simgpu/cudnn/execution.h"
#include "tests/simgpu/cudnn/legacy_algorithms.h"
#include "tests/simgpu/runtime/gpu.h"

namespace convtune::simgpu {
namespace {

// Of the three tensors.
constexpr int64_t kX = 1, kW = 2, kY = 3;
constexpr int kMostDims = 5;
// What the heuristics expect is off by up to so much of what the cost model gives.
constexpr double kSurprise = 0.3;

// The descriptors of one call.
struct Descriptors {
  Operation operation;
  cudnnTensorDescriptor_t x;
  cudnnFilterDescriptor_t w;
  cudnnConvolutionDescriptor_t conv;
  cudnnTensorDescriptor_t y;
};

DataType TypeOf(cudnnDataType_t number) {
  const auto* const row =
      std::find_if(std::begin(kCudnnTypes), std::end(kCudnnTypes),
                   [number](const CudnnType& of) { return of.number == number; });
  if (row == std::end(kCudnnTypes))
    Refuse("a type of the legacy API that convtune has no name for");
  return row->type;
}

// 2-D tensors have no depth.
Tensor ToTensor(cudnnDataType_t type, int rank, const int* dims, const int* strides) {
  if (rank != 4 && rank != 5) Refuse("a tensor that is neither 2-D nor 3-D");
  Tensor tensor;
  tensor.type = TypeOf(type);
  for (int i = 0; i < rank; ++i) {
    const auto at = static_cast<size_t>(i < 2 ? i : i + kMostDims - rank);
    tensor.dims[at] = dims[i];
    tensor.strides[at] = strides[i];
  }
  return tensor;
}

Tensor ReadTensor(cudnnTensorDescriptor_t descriptor) {
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  int rank = 0;
  int dims[kMostDims] = {};
  int strides[kMostDims] = {};
  Expect(cudnnGetTensorNdDescriptor(descriptor, kMostDims, &type, &rank, dims, strides),
         "read a tensor");
  return ToTensor(type, rank, dims, strides);
}

Tensor ReadFilter(cudnnFilterDescriptor_t descriptor) {
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  cudnnTensorFormat_t format = CUDNN_TENSOR_NCHW;
  int rank = 0;
  int dims[kMostDims] = {};
  int strides[kMostDims] = {};
  Expect(cudnnGetFilterNdDescriptor(descriptor, kMostDims, &type, &format, &rank, dims),
         "read a filter");
  const bool channels_last = format == CUDNN_TENSOR_NHWC;
  int stride = channels_last ? dims[1] : 1;
  for (int i = rank; i-- > 2; stride *= dims[i]) strides[i] = stride;
  strides[1] = channels_last ? 1 : stride;
  strides[0] = channels_last ? stride : stride * dims[1];
  return ToTensor(type, rank, dims, strides);
}

Program ReadProgram(const Descriptors& from) {
  Program program;
  Convolution& conv = program.convolution;
  conv.operation = from.operation;
  program.x = {kX, ReadTensor(from.x)};
  program.w = {kW, ReadFilter(from.w)};
  program.y = {kY, ReadTensor(from.y)};
  program.FinishConvolution();
  int rank = 0;
  int pad[3] = {};
  int stride[3] = {};
  int dilation[3] = {};
  int groups = 1;
  cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
  cudnnDataType_t compute = CUDNN_DATA_FLOAT;
  Expect(
      cudnnGetConvolutionNdDescriptor(from.conv, 3, &rank, pad, stride, dilation, &mode, &compute),
      "read a convolution");
  Expect(cudnnGetConvolutionGroupCount(from.conv, &groups), "read the groups");
  for (int i = 0; i < rank; ++i) {
    const auto at = static_cast<size_t>(i + 3 - rank);
    conv.pad[at] = pad[i];
    conv.stride[at] = stride[i];
    conv.dilation[at] = dilation[i];
  }
  conv.groups = groups;
  conv.compute = TypeOf(compute);
  conv.flipped = mode == CUDNN_CONVOLUTION;
  return program;
}

// What all functions ask of their arguments: `outputs` are where they leave what they give.
cudnnStatus_t Read(cudnnHandle_t handle, const Descriptors& from,
                   std::initializer_list<const void*> outputs, Program* program) {
  const bool all = handle && from.x && from.w && from.conv && from.y;
  if (!all || std::count(outputs.begin(), outputs.end(), nullptr) > 0) {
    return Error(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "an argument is null");
  }
  *program = ReadProgram(from);
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  int rank = 0, dims[kMostDims] = {}, strides[kMostDims] = {}, fitting[kMostDims] = {};
  Expect(cudnnGetTensorNdDescriptor(from.y, kMostDims, &type, &rank, dims, strides), "read y");
  if (cudnnGetConvolutionNdForwardOutputDim(from.conv, from.x, from.w, rank, fitting) !=
          CUDNN_STATUS_SUCCESS ||
      !std::equal(dims, dims + rank, fitting)) {
    return Error(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH, "y is not what x and w give");
  }
  return CUDNN_STATUS_SUCCESS;
}

cudnnMathType_t MathTypeOf(const Descriptors& from) {
  cudnnMathType_t math_type = CUDNN_DEFAULT_MATH;
  Expect(cudnnGetConvolutionMathType(from.conv, &math_type), "read the math type");
  return math_type;
}

std::string IdOf(int algorithm, cudnnMathType_t math_type) {
  return absl::StrCat(algorithm, "/", static_cast<int>(math_type));
}

std::shared_ptr<const Candidate> MakeCandidate(const Program& program, int algorithm,
                                               cudnnMathType_t math_type, int64_t workspace_bytes) {
  const Convolution& conv = program.convolution;
  const uint32_t notes =
      LegacyNotes(conv.operation, conv.x.type, std::max(conv.w.dims[3], conv.w.dims[4]), algorithm,
                  math_type, IsDeterministic(conv.operation, algorithm));
  return std::make_shared<Candidate>(program, Site{{"legacy", IdOf(algorithm, math_type)}}, notes,
                                     workspace_bytes);
}

template <typename Perf>
void Fill(Operation operation, const std::vector<LegacyEntry>& entries, int requested,
          int* returned, Perf* perfs) {
  *returned = std::min(requested, static_cast<int>(entries.size()));
  for (int i = 0; i < *returned; ++i) {
    const LegacyEntry& entry = entries[static_cast<size_t>(i)];
    perfs[i] = {};
    perfs[i].algo = static_cast<decltype(Perf::algo)>(entry.algorithm);
    perfs[i].status = entry.status;
    perfs[i].time = entry.us > 0 ? static_cast<float>(entry.us / 1000) : -1.0F;
    perfs[i].memory = static_cast<size_t>(entry.workspace_bytes);
    perfs[i].determinism =
        IsDeterministic(operation, entry.algorithm) ? CUDNN_DETERMINISTIC : CUDNN_NON_DETERMINISTIC;
    perfs[i].mathType = entry.math_type;
  }
}

// cudnnGet*_v7: what the cost model gives, but for a surprise.
template <typename Perf>
cudnnStatus_t List(cudnnHandle_t handle, const Descriptors& from, int requested, int* returned,
                   Perf* perfs) {
  Program program;
  const cudnnStatus_t status = Read(handle, from, {returned, perfs}, &program);
  if (status != CUDNN_STATUS_SUCCESS) return status;
  if (requested < 1) return Error(CUDNN_STATUS_BAD_PARAM, "there is no room for a result");
  if (FaultOfCall("cudnnGetAlgorithm_v7").has_value()) {
    return Error(CUDNN_STATUS_INTERNAL_ERROR, "failed");
  }
  std::vector<LegacyEntry> entries = EntriesOf(program.convolution, MathTypeOf(from));
  // Those that are refused behind the others.
  const auto key = [&](const LegacyEntry& entry) {
    const auto candidate =
        MakeCandidate(program, entry.algorithm, entry.math_type, entry.workspace_bytes);
    const uint64_t hash = HashOf(candidate->text + candidate->config, Gpu::Get().settings().seed);
    const bool tensor_cores =
        (candidate->numerical_notes & NoteBit(NumericalNote::kTensorCore)) != 0;
    const double us =
        MicrosecondsOf(program, tensor_cores, {}, candidate->slowness, Gpu::Get().profile());
    return std::pair(entry.status != CUDNN_STATUS_SUCCESS,
                     us * (1 + kSurprise * static_cast<double>(hash % 1024) / 1024));
  };
  std::stable_sort(entries.begin(), entries.end(),
                   [&](const LegacyEntry& a, const LegacyEntry& b) { return key(a) < key(b); });
  Fill(from.operation, entries, requested, returned, perfs);
  return CUDNN_STATUS_SUCCESS;
}

// The legacy API's library, and the plans that its executions used so far.
struct Legacy {
  Library library;
  std::map<std::string, Plan> plans;
};

Legacy& TheLegacy() {
  static auto& legacy = *new Legacy();
  return legacy;
}

// Measures one entry of cudnnFind*.
cudnnStatus_t Try(const Program& program, const Call& call, size_t workspace_bytes,
                  cudaStream_t stream, LegacyEntry* entry) {
  const std::optional<Action> fault = FaultAt({{"find", IdOf(entry->algorithm, entry->math_type)}});
  if (fault == Action::kHang) Hang();
  if (fault == Action::kAbort) std::abort();
  if (fault == Action::kNotSupported) return CUDNN_STATUS_NOT_SUPPORTED;
  if (fault.has_value()) return CUDNN_STATUS_EXECUTION_FAILED;
  if (entry->workspace_bytes > 0 &&
      (entry->workspace_bytes > static_cast<int64_t>(workspace_bytes) || !call.workspace)) {
    return CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED;
  }
  const Plan plan = {
      MakeCandidate(program, entry->algorithm, entry->math_type, entry->workspace_bytes)};
  return RunAndTime(plan, call, stream, &TheLegacy().library, &entry->us);
}

template <typename Perf>
cudnnStatus_t Find(cudnnHandle_t handle, const Descriptors& from,
                   const std::map<int64_t, void*>& data, int requested, int* returned, Perf* perfs,
                   void* workspace, size_t workspace_bytes) {
  Program program;
  const cudnnStatus_t status =
      Read(handle, from, {data.at(kX), data.at(kW), data.at(kY), returned, perfs}, &program);
  if (status != CUDNN_STATUS_SUCCESS) return status;
  if (requested < 1) return Error(CUDNN_STATUS_BAD_PARAM, "there is no room for a result");
  const cudaStream_t stream = FromCudnn(handle)->stream;
  if (const cudaError_t error = Gpu::Get().WaitForIdle(); error != cudaSuccess) {
    return Error(CUDNN_STATUS_EXECUTION_FAILED,
                 absl::StrCat("find: the GPU cannot be waited for: ", cudaGetErrorName(error)));
  }
  std::vector<LegacyEntry> entries = EntriesOf(program.convolution, MathTypeOf(from));
  for (LegacyEntry& entry : entries) {
    if (entry.status != CUDNN_STATUS_SUCCESS) continue;
    entry.status = Try(program, {data, workspace}, workspace_bytes, stream, &entry);
  }
  std::stable_sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
    return std::pair(a.us == 0, a.us) < std::pair(b.us == 0, b.us);
  });
  Fill(from.operation, entries, requested, returned, perfs);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t Workspace(cudnnHandle_t handle, const Descriptors& from, int algorithm,
                        size_t* bytes) {
  Program program;
  cudnnStatus_t status = Read(handle, from, {bytes}, &program);
  if (status != CUDNN_STATUS_SUCCESS) return status;
  int64_t needed = 0;
  status = WorkspaceOf(program.convolution, algorithm, &needed);
  *bytes = static_cast<size_t>(needed);
  return status == CUDNN_STATUS_SUCCESS ? status : Error(status, "the algorithm is not supported");
}

// 1 and 0, as the type that sums have says.
void CheckScales(const Descriptors& from, const void* alpha, const void* beta) {
  const bool wide = ReadTensor(from.y).type == DataType::kF64;
  const auto is = [wide](const void* scale, double value) {
    return wide ? *static_cast<const double*>(scale) == value
                : static_cast<double>(*static_cast<const float*>(scale)) == value;
  };
  if (!is(alpha, 1) || !is(beta, 0)) Refuse("alpha and beta must be 1 and 0");
}

cudnnStatus_t Run(cudnnHandle_t handle, const Descriptors& from,
                  const std::map<int64_t, void*>& data, int algorithm, void* workspace,
                  size_t workspace_bytes, const void* alpha, const void* beta) {
  Program program;
  cudnnStatus_t status = Read(handle, from, {alpha, beta}, &program);
  if (status != CUDNN_STATUS_SUCCESS) return status;
  CheckScales(from, alpha, beta);
  int64_t needed = 0;
  status = WorkspaceOf(program.convolution, algorithm, &needed);
  if (status != CUDNN_STATUS_SUCCESS) return Error(status, "the algorithm is not supported");
  if (needed > static_cast<int64_t>(workspace_bytes)) {
    return Error(CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT, "the workspace is too small");
  }
  const auto candidate = MakeCandidate(program, algorithm, MathTypeOf(from), needed);
  Plan& plan = TheLegacy().plans[candidate->text + candidate->config];
  if (plan.candidate == nullptr) plan.candidate = candidate;
  return Execute(&plan, {data, workspace}, FromCudnn(handle)->stream, &TheLegacy().library);
}

std::map<int64_t, void*> Data(const void* x, const void* w, const void* y) {
  const auto not_const = [](const void* memory) { return const_cast<void*>(memory); };
  return {{kX, not_const(x)}, {kW, not_const(w)}, {kY, not_const(y)}};
}

}  // namespace
}  // namespace convtune::simgpu

using namespace convtune::simgpu;
using convtune::Operation;

// The four functions of an operation. They differ in which of x, w and y is `a`, `b` and the
// output `c`, in this order; each is a tensor but w, which is a filter.
#define SIMGPU_LEGACY(OPERATION, NAME, ALGO, A, a, B, b, C, c)                                 \
  SIMGPU_HIDDEN cudnnStatus_t __wrap_cudnnGet##NAME##Algorithm_v7(                             \
      cudnnHandle_t handle, const A a, const B b, const cudnnConvolutionDescriptor_t conv,     \
      const C c, const int requested, int* returned, ALGO##Perf_t* perfs) {                    \
    return List(handle, {OPERATION, x, w, conv, y}, requested, returned, perfs);               \
  }                                                                                            \
  SIMGPU_HIDDEN cudnnStatus_t __wrap_cudnnFind##NAME##AlgorithmEx(                             \
      cudnnHandle_t handle, const A a, const void* a##_data, const B b, const void* b##_data,  \
      const cudnnConvolutionDescriptor_t conv, const C c, void* c##_data, const int requested, \
      int* returned, ALGO##Perf_t* perfs, void* workspace, size_t bytes) {                     \
    return Find(handle, {OPERATION, x, w, conv, y}, Data(x_data, w_data, y_data), requested,   \
                returned, perfs, workspace, bytes);                                            \
  }                                                                                            \
  SIMGPU_HIDDEN cudnnStatus_t __wrap_cudnnGet##NAME##WorkspaceSize(                            \
      cudnnHandle_t handle, const A a, const B b, const cudnnConvolutionDescriptor_t conv,     \
      const C c, ALGO##_t algorithm, size_t* bytes) {                                          \
    return Workspace(handle, {OPERATION, x, w, conv, y}, algorithm, bytes);                    \
  }                                                                                            \
  SIMGPU_HIDDEN cudnnStatus_t __wrap_cudnn##NAME(                                              \
      cudnnHandle_t handle, const void* alpha, const A a, const void* a##_data, const B b,     \
      const void* b##_data, const cudnnConvolutionDescriptor_t conv, ALGO##_t algorithm,       \
      void* workspace, size_t bytes, const void* beta, const C c, void* c##_data) {            \
    return Run(handle, {OPERATION, x, w, conv, y}, Data(x_data, w_data, y_data), algorithm,    \
               workspace, bytes, alpha, beta);                                                 \
  }

SIMGPU_LEGACY(Operation::kFwd, ConvolutionForward, cudnnConvolutionFwdAlgo, cudnnTensorDescriptor_t,
              x, cudnnFilterDescriptor_t, w, cudnnTensorDescriptor_t, y)
SIMGPU_LEGACY(Operation::kBwdData, ConvolutionBackwardData, cudnnConvolutionBwdDataAlgo,
              cudnnFilterDescriptor_t, w, cudnnTensorDescriptor_t, y, cudnnTensorDescriptor_t, x)
SIMGPU_LEGACY(Operation::kBwdFilter, ConvolutionBackwardFilter, cudnnConvolutionBwdFilterAlgo,
              cudnnTensorDescriptor_t, x, cudnnTensorDescriptor_t, y, cudnnFilterDescriptor_t, w)

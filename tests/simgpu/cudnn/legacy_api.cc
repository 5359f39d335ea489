// cuDNN's legacy API of convolutions above the simulated GPU. Descriptors are the real library's.
#include <cudnn.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/model/tuning/note_rules.h"
#include "tests/simgpu/cudnn/cost_model.h"
#include "tests/simgpu/cudnn/execution.h"
#include "tests/simgpu/cudnn/handle.h"
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

void Expect(cudnnStatus_t status, const char* what) {
  if (status != CUDNN_STATUS_SUCCESS)
    Refuse(std::string(what) + ": " + cudnnGetErrorString(status));
}

DataType TypeOf(cudnnDataType_t type) {
  switch (type) {
    case CUDNN_DATA_DOUBLE:
      return DataType::kF64;
    case CUDNN_DATA_FLOAT:
      return DataType::kF32;
    case CUDNN_DATA_HALF:
      return DataType::kF16;
    case CUDNN_DATA_BFLOAT16:
      return DataType::kBF16;
    case CUDNN_DATA_INT8:
      return DataType::kI8;
    case CUDNN_DATA_INT32:
      return DataType::kI32;
    case CUDNN_DATA_FP8_E4M3:
      return DataType::kE4M3;
    case CUDNN_DATA_FP8_E5M2:
      return DataType::kE5M2;
    default:
      Refuse("a type of the legacy API that convtune has no name for");
  }
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
  conv.x = ReadTensor(from.x);
  conv.w = ReadFilter(from.w);
  conv.y = ReadTensor(from.y);
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
  conv.flipped = mode == CUDNN_CONVOLUTION;
  program.x_uid = kX;
  program.w_uid = kW;
  program.y_uid = kY;
  program.output = from.operation == Operation::kFwd       ? Operand{kY, conv.y}
                   : from.operation == Operation::kBwdData ? Operand{kX, conv.x}
                                                           : Operand{kW, conv.w};
  return program;
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
  Site site;
  site.legacy = IdOf(algorithm, math_type);
  const uint32_t notes =
      LegacyNotes(conv.operation, conv.x.type, std::max(conv.w.dims[3], conv.w.dims[4]), algorithm,
                  math_type, IsDeterministic(conv.operation, algorithm));
  return std::make_shared<Candidate>(program, site, notes, workspace_bytes);
}

// Those that are refused behind the others.
template <typename Key>
void Order(const Key& key, std::vector<LegacyEntry>* entries) {
  std::stable_sort(entries->begin(), entries->end(),
                   [&](const LegacyEntry& a, const LegacyEntry& b) { return key(a) < key(b); });
}

template <typename Perf>
cudnnStatus_t Fill(const std::vector<LegacyEntry>& entries, const std::vector<double>& times_us,
                   int requested, int* returned, Perf* perfs) {
  if (requested < 1 || returned == nullptr || perfs == nullptr) {
    return Error(CUDNN_STATUS_BAD_PARAM, "there is no room for a result");
  }
  *returned = std::min(requested, static_cast<int>(entries.size()));
  for (int i = 0; i < *returned; ++i) {
    const LegacyEntry& entry = entries[static_cast<size_t>(i)];
    const double us = times_us.empty() ? 0 : times_us[static_cast<size_t>(i)];
    perfs[i] = {};
    perfs[i].algo = static_cast<decltype(Perf::algo)>(entry.algorithm);
    perfs[i].status = entry.status;
    perfs[i].time = us > 0 ? static_cast<float>(us / 1000) : -1.0F;
    perfs[i].memory = static_cast<size_t>(entry.workspace_bytes);
    perfs[i].determinism = entry.deterministic ? CUDNN_DETERMINISTIC : CUDNN_NON_DETERMINISTIC;
    perfs[i].mathType = entry.math_type;
  }
  return CUDNN_STATUS_SUCCESS;
}

// cudnnGet*_v7: what the cost model gives, but for a surprise.
template <typename Perf>
cudnnStatus_t List(const Descriptors& from, int requested, int* returned, Perf* perfs) {
  const Program program = ReadProgram(from);
  const uint64_t seed = Gpu::Get().settings().seed;
  std::vector<LegacyEntry> entries = EntriesOf(program.convolution, MathTypeOf(from));
  Order(
      [&](const LegacyEntry& entry) {
        const auto candidate =
            MakeCandidate(program, entry.algorithm, entry.math_type, entry.workspace_bytes);
        const auto surprise =
            static_cast<double>(HashOf(candidate->text + candidate->config, seed) % 1024) / 1024;
        const bool tensor_cores =
            (candidate->numerical_notes & NoteBit(NumericalNote::kTensorCore)) != 0;
        const double us =
            MicrosecondsOf(program, tensor_cores, {}, candidate->slowness, Gpu::Get().profile());
        return std::pair(entry.status != CUDNN_STATUS_SUCCESS, us * (1 + kSurprise * surprise));
      },
      &entries);
  return Fill(entries, {}, requested, returned, perfs);
}

// One entry of cudnnFind*: its time, or 0 and a status.
double Try(const Program& program, const std::map<int64_t, void*>& data, void* workspace,
           size_t workspace_bytes, cudaStream_t stream, LegacyEntry* entry) {
  Site site;
  site.find = IdOf(entry->algorithm, entry->math_type);
  if (entry->status != CUDNN_STATUS_SUCCESS) return 0;
  const std::optional<Action> fault = FaultAt(site);
  if (fault == Action::kHang) Hang();
  if (fault == Action::kAbort) std::abort();
  if (fault.has_value()) {
    entry->status =
        fault == Action::kNotSupported ? CUDNN_STATUS_NOT_SUPPORTED : CUDNN_STATUS_EXECUTION_FAILED;
    return 0;
  }
  if (entry->workspace_bytes > static_cast<int64_t>(workspace_bytes) ||
      (entry->workspace_bytes > 0 && workspace == nullptr)) {
    entry->status = CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED;
    return 0;
  }
  Call call;
  call.candidate =
      MakeCandidate(program, entry->algorithm, entry->math_type, entry->workspace_bytes);
  call.data = data;
  call.workspace = workspace;
  double us = 0;
  if (RunAndTime(call, stream, &us) != cudaSuccess) {
    entry->status = CUDNN_STATUS_EXECUTION_FAILED;
    return 0;
  }
  return us;
}

template <typename Perf>
cudnnStatus_t Find(cudnnHandle_t handle, const Descriptors& from,
                   const std::map<int64_t, void*>& data, int requested, int* returned, Perf* perfs,
                   void* workspace, size_t workspace_bytes) {
  if (handle == nullptr) return Error(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "the handle is null");
  const cudaStream_t stream = FromCudnn(handle)->stream;
  if (const cudaError_t error = Gpu::Get().WaitForIdle(); error != cudaSuccess) {
    return Error(CUDNN_STATUS_EXECUTION_FAILED,
                 absl::StrCat("find: the GPU cannot be waited for: ", cudaGetErrorName(error)));
  }
  const Program program = ReadProgram(from);
  std::vector<std::pair<double, LegacyEntry>> timed;
  for (LegacyEntry& entry : EntriesOf(program.convolution, MathTypeOf(from))) {
    const double us = Try(program, data, workspace, workspace_bytes, stream, &entry);
    timed.emplace_back(us, entry);
  }
  std::stable_sort(timed.begin(), timed.end(), [](const auto& a, const auto& b) {
    return std::pair(a.first == 0, a.first) < std::pair(b.first == 0, b.first);
  });
  std::vector<LegacyEntry> entries;
  std::vector<double> times_us;
  for (const auto& [us, entry] : timed) {
    times_us.push_back(us);
    entries.push_back(entry);
  }
  return Fill(entries, times_us, requested, returned, perfs);
}

cudnnStatus_t Workspace(const Descriptors& from, int algorithm, size_t* bytes) {
  int64_t needed = 0;
  const cudnnStatus_t status = WorkspaceOf(ReadProgram(from).convolution, algorithm, &needed);
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

cudnnStatus_t Run(cudnnHandle_t handle, const Descriptors& from, std::map<int64_t, void*> data,
                  int algorithm, void* workspace, size_t workspace_bytes, const void* alpha,
                  const void* beta) {
  static Library library;
  static auto& loaded = *new std::map<std::string, bool>();
  if (handle == nullptr) return Error(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "the handle is null");
  CheckScales(from, alpha, beta);
  const Program program = ReadProgram(from);
  int64_t needed = 0;
  const cudnnStatus_t status = WorkspaceOf(program.convolution, algorithm, &needed);
  if (status != CUDNN_STATUS_SUCCESS) return Error(status, "the algorithm is not supported");
  if (needed > static_cast<int64_t>(workspace_bytes)) {
    return Error(CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT, "the workspace is too small");
  }
  Call call;
  call.candidate = MakeCandidate(program, algorithm, MathTypeOf(from), needed);
  call.data = std::move(data);
  call.workspace = workspace;
  return Execute(call, FromCudnn(handle)->stream, &library,
                 &loaded[call.candidate->text + call.candidate->config]);
}

void* NotConst(const void* memory) { return const_cast<void*>(memory); }

}  // namespace
}  // namespace convtune::simgpu

using namespace convtune::simgpu;
using convtune::Operation;

SIMGPU_HIDDEN cudnnStatus_t __wrap_cudnnGetConvolutionForwardAlgorithm_v7(
    cudnnHandle_t, const cudnnTensorDescriptor_t x, const cudnnFilterDescriptor_t w,
    const cudnnConvolutionDescriptor_t conv, const cudnnTensorDescriptor_t y, const int requested,
    int* returned, cudnnConvolutionFwdAlgoPerf_t* perfs) {
  return List({Operation::kFwd, x, w, conv, y}, requested, returned, perfs);
}

SIMGPU_HIDDEN cudnnStatus_t __wrap_cudnnGetConvolutionBackwardDataAlgorithm_v7(
    cudnnHandle_t, const cudnnFilterDescriptor_t w, const cudnnTensorDescriptor_t y,
    const cudnnConvolutionDescriptor_t conv, const cudnnTensorDescriptor_t x, const int requested,
    int* returned, cudnnConvolutionBwdDataAlgoPerf_t* perfs) {
  return List({Operation::kBwdData, x, w, conv, y}, requested, returned, perfs);
}

SIMGPU_HIDDEN cudnnStatus_t __wrap_cudnnGetConvolutionBackwardFilterAlgorithm_v7(
    cudnnHandle_t, const cudnnTensorDescriptor_t x, const cudnnTensorDescriptor_t y,
    const cudnnConvolutionDescriptor_t conv, const cudnnFilterDescriptor_t w, const int requested,
    int* returned, cudnnConvolutionBwdFilterAlgoPerf_t* perfs) {
  return List({Operation::kBwdFilter, x, w, conv, y}, requested, returned, perfs);
}

SIMGPU_HIDDEN cudnnStatus_t __wrap_cudnnFindConvolutionForwardAlgorithmEx(
    cudnnHandle_t handle, const cudnnTensorDescriptor_t x, const void* x_data,
    const cudnnFilterDescriptor_t w, const void* w_data, const cudnnConvolutionDescriptor_t conv,
    const cudnnTensorDescriptor_t y, void* y_data, const int requested, int* returned,
    cudnnConvolutionFwdAlgoPerf_t* perfs, void* workspace, size_t bytes) {
  return Find(handle, {Operation::kFwd, x, w, conv, y},
              {{kX, NotConst(x_data)}, {kW, NotConst(w_data)}, {kY, y_data}}, requested, returned,
              perfs, workspace, bytes);
}

SIMGPU_HIDDEN cudnnStatus_t __wrap_cudnnFindConvolutionBackwardDataAlgorithmEx(
    cudnnHandle_t handle, const cudnnFilterDescriptor_t w, const void* w_data,
    const cudnnTensorDescriptor_t y, const void* y_data, const cudnnConvolutionDescriptor_t conv,
    const cudnnTensorDescriptor_t x, void* x_data, const int requested, int* returned,
    cudnnConvolutionBwdDataAlgoPerf_t* perfs, void* workspace, size_t bytes) {
  return Find(handle, {Operation::kBwdData, x, w, conv, y},
              {{kX, x_data}, {kW, NotConst(w_data)}, {kY, NotConst(y_data)}}, requested, returned,
              perfs, workspace, bytes);
}

SIMGPU_HIDDEN cudnnStatus_t __wrap_cudnnFindConvolutionBackwardFilterAlgorithmEx(
    cudnnHandle_t handle, const cudnnTensorDescriptor_t x, const void* x_data,
    const cudnnTensorDescriptor_t y, const void* y_data, const cudnnConvolutionDescriptor_t conv,
    const cudnnFilterDescriptor_t w, void* w_data, const int requested, int* returned,
    cudnnConvolutionBwdFilterAlgoPerf_t* perfs, void* workspace, size_t bytes) {
  return Find(handle, {Operation::kBwdFilter, x, w, conv, y},
              {{kX, NotConst(x_data)}, {kW, w_data}, {kY, NotConst(y_data)}}, requested, returned,
              perfs, workspace, bytes);
}

SIMGPU_HIDDEN cudnnStatus_t __wrap_cudnnGetConvolutionForwardWorkspaceSize(
    cudnnHandle_t, const cudnnTensorDescriptor_t x, const cudnnFilterDescriptor_t w,
    const cudnnConvolutionDescriptor_t conv, const cudnnTensorDescriptor_t y,
    cudnnConvolutionFwdAlgo_t algorithm, size_t* bytes) {
  return Workspace({Operation::kFwd, x, w, conv, y}, algorithm, bytes);
}

SIMGPU_HIDDEN cudnnStatus_t __wrap_cudnnGetConvolutionBackwardDataWorkspaceSize(
    cudnnHandle_t, const cudnnFilterDescriptor_t w, const cudnnTensorDescriptor_t y,
    const cudnnConvolutionDescriptor_t conv, const cudnnTensorDescriptor_t x,
    cudnnConvolutionBwdDataAlgo_t algorithm, size_t* bytes) {
  return Workspace({Operation::kBwdData, x, w, conv, y}, algorithm, bytes);
}

SIMGPU_HIDDEN cudnnStatus_t __wrap_cudnnGetConvolutionBackwardFilterWorkspaceSize(
    cudnnHandle_t, const cudnnTensorDescriptor_t x, const cudnnTensorDescriptor_t y,
    const cudnnConvolutionDescriptor_t conv, const cudnnFilterDescriptor_t w,
    cudnnConvolutionBwdFilterAlgo_t algorithm, size_t* bytes) {
  return Workspace({Operation::kBwdFilter, x, w, conv, y}, algorithm, bytes);
}

SIMGPU_HIDDEN cudnnStatus_t __wrap_cudnnConvolutionForward(
    cudnnHandle_t handle, const void* alpha, const cudnnTensorDescriptor_t x, const void* x_data,
    const cudnnFilterDescriptor_t w, const void* w_data, const cudnnConvolutionDescriptor_t conv,
    cudnnConvolutionFwdAlgo_t algorithm, void* workspace, size_t bytes, const void* beta,
    const cudnnTensorDescriptor_t y, void* y_data) {
  return Run(handle, {Operation::kFwd, x, w, conv, y},
             {{kX, NotConst(x_data)}, {kW, NotConst(w_data)}, {kY, y_data}}, algorithm, workspace,
             bytes, alpha, beta);
}

SIMGPU_HIDDEN cudnnStatus_t __wrap_cudnnConvolutionBackwardData(
    cudnnHandle_t handle, const void* alpha, const cudnnFilterDescriptor_t w, const void* w_data,
    const cudnnTensorDescriptor_t y, const void* y_data, const cudnnConvolutionDescriptor_t conv,
    cudnnConvolutionBwdDataAlgo_t algorithm, void* workspace, size_t bytes, const void* beta,
    const cudnnTensorDescriptor_t x, void* x_data) {
  return Run(handle, {Operation::kBwdData, x, w, conv, y},
             {{kX, x_data}, {kW, NotConst(w_data)}, {kY, NotConst(y_data)}}, algorithm, workspace,
             bytes, alpha, beta);
}

SIMGPU_HIDDEN cudnnStatus_t __wrap_cudnnConvolutionBackwardFilter(
    cudnnHandle_t handle, const void* alpha, const cudnnTensorDescriptor_t x, const void* x_data,
    const cudnnTensorDescriptor_t y, const void* y_data, const cudnnConvolutionDescriptor_t conv,
    cudnnConvolutionBwdFilterAlgo_t algorithm, void* workspace, size_t bytes, const void* beta,
    const cudnnFilterDescriptor_t w, void* w_data) {
  return Run(handle, {Operation::kBwdFilter, x, w, conv, y},
             {{kX, NotConst(x_data)}, {kW, w_data}, {kY, NotConst(y_data)}}, algorithm, workspace,
             bytes, alpha, beta);
}

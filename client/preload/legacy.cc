#include "client/preload/legacy.h"

#include <float.h>

#include <algorithm>

#include "client/preload/counters.h"
#include "client/preload/device.h"
#include "client/preload/problems.h"
#include "client/preload/real_cudnn.h"
#include "client/preload/shadow.h"
#include "client/preload/state.h"
#include "proto/model/problem/tensor_rules.h"
#include "proto/model/tuning/note_rules.h"

namespace convtune::preload {
namespace {

constexpr int kAsked = 8;  // CUDNN_DIM_MAX

void Widen(const int* from, int count, int64_t* to) {
  for (int i = 0; i < count; ++i) {
    to[i] = from[i];
  }
}

bool ReadTensor(cudnnTensorDescriptor_t descriptor, TensorShadow* tensor) {
  cudnnDataType_t type = {};
  int dims[kAsked] = {};
  int strides[kAsked] = {};
  if (real_cudnn.Tensor(descriptor, kAsked, &type, &tensor->rank, dims, strides) !=
          CUDNN_STATUS_SUCCESS ||
      tensor->rank < 4 || tensor->rank > snapshot::kMaxRank) {
    return false;
  }
  tensor->type = type;
  tensor->alignment = 16;
  Widen(dims, tensor->rank, tensor->dims);
  Widen(strides, tensor->rank, tensor->strides);
  return true;
}

bool ReadFilter(cudnnFilterDescriptor_t descriptor, TensorShadow* filter) {
  cudnnDataType_t type = {};
  cudnnTensorFormat_t layout = {};
  int dims[kAsked] = {};
  if (real_cudnn.Filter(descriptor, kAsked, &type, &layout, &filter->rank, dims) !=
          CUDNN_STATUS_SUCCESS ||
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

bool ReadConvolution(cudnnConvolutionDescriptor_t descriptor, ConvolutionShadow* conv) {
  cudnnConvolutionMode_t mode = {};
  cudnnDataType_t compute = {};
  int pad[kAsked] = {};
  int stride[kAsked] = {};
  int dilation[kAsked] = {};
  if (real_cudnn.Convolution(descriptor, kAsked - 2, &conv->spatial, pad, stride, dilation, &mode,
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

// Key of the call's problem, and the math type that its descriptor allows.
// False if the descriptors say something that the key cannot, or cannot be
// read.
bool MakeLegacyKey(const LegacyCall& call, snapshot::ProblemKey* key, cudnnMathType_t* math) {
  OperationShadow operation = {};
  operation.convolution = static_cast<uint8_t>(call.operation);
  int groups = 0;
  if (!ReadTensor(call.x, &operation.x) || !ReadFilter(call.w, &operation.w) ||
      !ReadTensor(call.y, &operation.y) || !ReadConvolution(call.convolution, &operation.conv) ||
      real_cudnn.Groups(call.convolution, &groups) != CUDNN_STATUS_SUCCESS ||
      real_cudnn.Math(call.convolution, math) != CUDNN_STATUS_SUCCESS) {
    return false;
  }
  const OperationShadow* operations[] = {&operation};
  return MakeKey(operations, 1, key) && key->groups == groups;
}

// Workspace of an algorithm under the descriptor's own settings; false if cuDNN
// refuses it.
bool LegacyWorkspace(const LegacyCall& c, int algorithm, size_t* bytes) {
  switch (c.operation) {
    case 1:
      return real_cudnn.FwdWorkspace(c.handle, c.x, c.w, c.convolution, c.y,
                                     static_cast<cudnnConvolutionFwdAlgo_t>(algorithm),
                                     bytes) == CUDNN_STATUS_SUCCESS;
    case 2:
      return real_cudnn.BwdDataWorkspace(c.handle, c.w, c.y, c.convolution, c.x,
                                         static_cast<cudnnConvolutionBwdDataAlgo_t>(algorithm),
                                         bytes) == CUDNN_STATUS_SUCCESS;
    default:
      return real_cudnn.BwdFilterWorkspace(c.handle, c.x, c.y, c.convolution, c.w,
                                           static_cast<cudnnConvolutionBwdFilterAlgo_t>(algorithm),
                                           bytes) == CUDNN_STATUS_SUCCESS;
  }
}

// cuDNN's own list without a search (Get_v7). Number of results, 0 on an error.
int LegacyHeuristics(const LegacyCall& c, int requested, LegacyResult* results) {
  int returned = 0;
  cudnnStatus_t status = CUDNN_STATUS_NOT_SUPPORTED;
  switch (c.operation) {
    case 1:
      status = real_cudnn.Fwd(c.handle, c.x, c.w, c.convolution, c.y, requested, &returned,
                              reinterpret_cast<cudnnConvolutionFwdAlgoPerf_t*>(results));
      break;
    case 2:
      status = real_cudnn.BwdData(c.handle, c.w, c.y, c.convolution, c.x, requested, &returned,
                                  reinterpret_cast<cudnnConvolutionBwdDataAlgoPerf_t*>(results));
      break;
    default:
      status =
          real_cudnn.BwdFilter(c.handle, c.x, c.y, c.convolution, c.w, requested, &returned,
                               reinterpret_cast<cudnnConvolutionBwdFilterAlgoPerf_t*>(results));
  }
  return status == CUDNN_STATUS_SUCCESS ? returned : 0;
}

// The longest side of the filter.
int64_t FilterExtent(const snapshot::ProblemKey& key) {
  return *std::max_element(key.w_dims + 2, key.w_dims + 2 + key.spatial_rank);
}

// What cuDNN's own first choice under this call's limits is like.
bool LegacyStock(const LegacyCall& call, const Problem& problem, const LegacyResult* own, int count,
                 snapshot::StockChoice* stock) {
  for (int i = 0; i < count; ++i) {
    if (own[i].status == CUDNN_STATUS_SUCCESS && own[i].memory <= call.workspace_limit) {
      const snapshot::ProblemKey& key = problem.key;
      const uint32_t notes =
          LegacyNotes(static_cast<Operation>(call.operation), static_cast<DataType>(key.data_type),
                      FilterExtent(key), own[i].algo, own[i].mathType,
                      own[i].determinism == CUDNN_DETERMINISTIC);
      *stock = {1, notes, 0, 0, static_cast<int64_t>(own[i].memory)};
      return true;
    }
  }
  return false;
}

// The stored algorithms that the call allows. Returns how many; `reason` says
// why where there are none.
int Choose(const State& state, const LegacyCall& call, const Problem& problem, cudnnMathType_t math,
           const snapshot::StockChoice& stock, LegacyResult* results, int most,
           snapshot::UnservedReason* reason) {
  const snapshot::SnapshotEntry& entry = *problem.entry;
  const snapshot::SnapshotCandidate* candidates = state.view.candidates(entry);
  int count = 0;
  *reason = snapshot::UnservedReason::kNoEntry;
  for (int i = 0; i < entry.candidate_count && count < most; ++i) {
    const snapshot::SnapshotCandidate& candidate = candidates[i];
    if (candidate.api != snapshot::kApiLegacy) {
      continue;
    }
    *reason = snapshot::UnservedReason::kNotNeutral;
    size_t bytes = 0;
    if (!IsMathAllowed(candidate.math_type, math) ||
        !snapshot::IsNeutral(
            state.settings.allow_notes ? stock.numerical_notes : candidate.numerical_notes, 0,
            stock.numerical_notes, 0)) {
      continue;
    }
    const auto algorithm = static_cast<int>(candidate.number);
    if (!LegacyWorkspace(call, algorithm, &bytes)) {
      *reason = snapshot::UnservedReason::kRefused;
      continue;
    }
    if (bytes > call.workspace_limit ||
        (!state.settings.allow_workspace && static_cast<int64_t>(bytes) > stock.workspace_bytes)) {
      continue;
    }
    LegacyResult& result = results[count++];
    result = {};
    result.algo = algorithm;
    result.status = CUDNN_STATUS_SUCCESS;
    result.time = call.timed ? candidate.time_us / 1000.0F : -1.0F;
    result.memory = bytes;
    result.determinism = (candidate.flags & snapshot::kDeterministic) != 0
                             ? CUDNN_DETERMINISTIC
                             : CUDNN_NON_DETERMINISTIC;
    result.mathType = static_cast<cudnnMathType_t>(candidate.math_type);
  }
  return count;
}

// cuDNN's own list behind ours, without a search. What was not timed sorts
// behind what was: some programs take the smallest time.
int AppendOwn(const LegacyCall& call, const LegacyResult* own, int own_count, int count) {
  for (int i = 0; i < own_count && count < call.requested; ++i) {
    const bool given = std::any_of(call.results, call.results + count, [&](const auto& result) {
      return result.algo == own[i].algo && result.mathType == own[i].mathType;
    });
    if (given || own[i].memory > call.workspace_limit) {
      continue;
    }
    call.results[count] = own[i];
    if (call.timed && own[i].status == CUDNN_STATUS_SUCCESS) {
      call.results[count].time = FLT_MAX;
    }
    ++count;
  }
  return count;
}

}  // namespace

bool IsMathAllowed(int candidate, cudnnMathType_t allowed) {
  const auto freedom = [](int math) {
    return math == CUDNN_FMA_MATH                          ? 0
           : math == CUDNN_DEFAULT_MATH                    ? 1
           : math == CUDNN_TENSOR_OP_MATH                  ? 2
           : math == CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION ? 3
                                                           : 4;
  };
  return freedom(candidate) <= freedom(allowed) && freedom(allowed) < 4;
}

bool ServeLegacy(const LegacyCall& call, Problem** problem) {
  *problem = nullptr;
  Count(Counter::kLegacyCalls);
  const State& state = GetState();
  snapshot::ProblemKey key;
  snapshot::EnvironmentKey environment;
  cudnnMathType_t math = {};
  if (call.requested >= 1 && call.returned != nullptr && call.results != nullptr &&
      MakeLegacyKey(call, &key, &math) && CurrentEnvironment(&environment)) {
    *problem = FindProblem(environment, key);
  }
  if (*problem == nullptr) {
    Count(Counter::kPassed);
    return false;
  }
  Count(Counter::kQueries);
  if ((*problem)->entry == nullptr) {
    NoteMiss(*problem, (*problem)->why);
    return false;
  }
  if (state.settings.policy == Policy::kObserve || Killed(state)) {
    Count(Counter::kObserved);
    return false;
  }
  constexpr int kMostResults = 16;
  LegacyResult own[kMostResults];
  const int own_count = LegacyHeuristics(call, kMostResults, own);
  snapshot::StockChoice stock = {};
  snapshot::UnservedReason reason = snapshot::UnservedReason::kNotNeutral;
  int count = 0;
  if (LegacyStock(call, **problem, own, own_count, &stock)) {
    count = Choose(state, call, **problem, math, stock, call.results, call.requested, &reason);
  }
  if (count == 0) {
    NoteMiss(*problem, reason);
    return false;
  }
  if (state.settings.policy != Policy::kTruncate) {
    count = AppendOwn(call, own, own_count, count);
  }
  *call.returned = count;
  Count(Counter::kServed);
  Count(Counter::kLegacyServed);
  return true;
}

void LearnLegacy(const LegacyCall& call, Problem* problem) {
  if (problem == nullptr || !call.timed || problem->legacy_told.exchange(true)) {
    return;
  }
  snapshot::ObservedLegacyDatagram datagram = {};
  for (int i = 0; i < *call.returned && datagram.result_count < snapshot::kMaxDatagramResults;
       ++i) {
    const LegacyResult& result = call.results[i];
    if (result.status != CUDNN_STATUS_SUCCESS || !(result.time > 0)) {
      continue;
    }
    datagram.results[datagram.result_count++] = {
        result.algo, result.mathType, result.time * 1000.0F,
        result.determinism == CUDNN_DETERMINISTIC ? 1U : 0U, static_cast<int64_t>(result.memory)};
  }
  if (datagram.result_count > 0) {
    TellLegacy(*problem, &datagram);
  }
}

int LimitLegacy(int64_t limit, int count, int most, LegacyResult* results) {
  const auto fits = [limit](const LegacyResult& result) {
    return result.memory <= static_cast<uint64_t>(limit);
  };
  const LegacyResult* end = results + count;
  const bool any = std::any_of(results, results + count, [&](const LegacyResult& result) {
    return result.status == CUDNN_STATUS_SUCCESS && fits(result);
  });
  const bool all = std::all_of(results, results + count, fits);
  if (!all) {
    Count(any ? Counter::kLimited : Counter::kOverLimit);
  }
  if (any) {
    end = std::remove_if(results, results + count,
                         [&](const LegacyResult& result) { return !fits(result); });
  }
  return std::min(static_cast<int>(end - results), most);
}

}  // namespace convtune::preload

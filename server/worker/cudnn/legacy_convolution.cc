#include "server/worker/cudnn/legacy_convolution.h"

#include <algorithm>

#include "proto/base/status_macros.h"
#include "server/worker/cudnn/cudnn_status.h"
#include "server/worker/cudnn/graph_builder.h"

namespace convtune::worker::cudnn {
namespace {

std::vector<int> ToInts(const std::vector<int64_t>& values) {
  return {values.begin(), values.end()};
}

template <typename Perf>
FoundAlgorithm FromPerf(const Perf& perf) {
  FoundAlgorithm found;
  found.id = {static_cast<int>(perf.algo), static_cast<int>(perf.mathType)};
  found.status = perf.status;
  // cudnnGet*_v7 gives no time.
  found.time_us = perf.status == CUDNN_STATUS_SUCCESS && perf.time > 0 ? perf.time * 1000.0 : 0.0;
  found.workspace_bytes = static_cast<int64_t>(perf.memory);
  found.deterministic = perf.determinism == CUDNN_DETERMINISTIC;
  return found;
}

template <typename Perf>
std::vector<FoundAlgorithm> FromPerfs(const std::vector<Perf>& perfs, int count) {
  std::vector<FoundAlgorithm> found;
  for (int i = 0; i < std::min(count, static_cast<int>(perfs.size())); ++i) {
    found.push_back(FromPerf(perfs[static_cast<size_t>(i)]));
  }
  return found;
}

int AlgorithmCount(Operation operation) {
  switch (operation) {
    case Operation::kBwdData:
      return CUDNN_CONVOLUTION_BWD_DATA_ALGO_COUNT;
    case Operation::kBwdFilter:
      return CUDNN_CONVOLUTION_BWD_FILTER_ALGO_COUNT;
    case Operation::kFwd:
      break;
  }
  return CUDNN_CONVOLUTION_FWD_ALGO_COUNT;
}

// Each search and list has an entry for each algorithm and math type.
constexpr int kMathTypes = 4;

}  // namespace

absl::StatusOr<std::unique_ptr<LegacyConvolution>> LegacyConvolution::Create(
    const ConvProblem& problem, cudnnHandle_t handle) {
  std::unique_ptr<LegacyConvolution> convolution(new LegacyConvolution(problem, handle));
  RETURN_IF_ERROR(convolution->Init(problem));
  return convolution;
}

absl::Status LegacyConvolution::Init(const ConvProblem& problem) {
  cudnnTensorDescriptor_t tensor = nullptr;
  RETURN_IF_ERROR(ToStatus(cudnnCreateTensorDescriptor(&tensor), "create a tensor"));
  x_.reset(tensor);
  RETURN_IF_ERROR(ToStatus(cudnnCreateTensorDescriptor(&tensor), "create a tensor"));
  y_.reset(tensor);
  cudnnFilterDescriptor_t filter = nullptr;
  RETURN_IF_ERROR(ToStatus(cudnnCreateFilterDescriptor(&filter), "create a filter"));
  w_.reset(filter);
  cudnnConvolutionDescriptor_t conv = nullptr;
  RETURN_IF_ERROR(ToStatus(cudnnCreateConvolutionDescriptor(&conv), "create a convolution"));
  conv_.reset(conv);

  const auto type_of = [&problem](Operation writer) {
    return ToCudnn(problem.operation() == writer ? problem.output_type() : problem.data_type());
  };
  const std::vector<int> x_dims = ToInts(problem.x_dims());
  const std::vector<int> y_dims = ToInts(problem.y_dims());
  const std::vector<int> w_dims = ToInts(problem.w_dims());
  const int rank = static_cast<int>(x_dims.size());
  RETURN_IF_ERROR(
      ToStatus(cudnnSetTensorNdDescriptor(x_.get(), type_of(Operation::kBwdData), rank,
                                          x_dims.data(), ToInts(problem.x_strides()).data()),
               "set x"));
  RETURN_IF_ERROR(
      ToStatus(cudnnSetTensorNdDescriptor(y_.get(), type_of(Operation::kFwd), rank, y_dims.data(),
                                          ToInts(problem.y_strides()).data()),
               "set y"));
  const cudnnTensorFormat_t format =
      problem.layout() == TensorLayout::kNhwc ? CUDNN_TENSOR_NHWC : CUDNN_TENSOR_NCHW;
  RETURN_IF_ERROR(ToStatus(cudnnSetFilterNdDescriptor(w_.get(), type_of(Operation::kBwdFilter),
                                                      format, rank, w_dims.data()),
                           "set w"));
  RETURN_IF_ERROR(
      ToStatus(cudnnSetConvolutionNdDescriptor(
                   conv_.get(), problem.spatial_rank(), ToInts(problem.pad_low()).data(),
                   ToInts(problem.strides()).data(), ToInts(problem.dilations()).data(),
                   ToCudnn(problem.mode()), ToCudnn(problem.compute_type())),
               "set the convolution"));
  return ToStatus(cudnnSetConvolutionGroupCount(conv_.get(), static_cast<int>(problem.groups())),
                  "set the groups");
}

absl::Status LegacyConvolution::SetMathType(int math_type) {
  return ToStatus(cudnnSetConvolutionMathType(conv_.get(), static_cast<cudnnMathType_t>(math_type)),
                  "set the math type");
}

absl::StatusOr<int64_t> LegacyConvolution::WorkspaceOf(int algorithm) {
  size_t bytes = 0;
  cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
  switch (operation_) {
    case Operation::kFwd:
      status = cudnnGetConvolutionForwardWorkspaceSize(
          handle_, x_.get(), w_.get(), conv_.get(), y_.get(),
          static_cast<cudnnConvolutionFwdAlgo_t>(algorithm), &bytes);
      break;
    case Operation::kBwdData:
      status = cudnnGetConvolutionBackwardDataWorkspaceSize(
          handle_, w_.get(), y_.get(), conv_.get(), x_.get(),
          static_cast<cudnnConvolutionBwdDataAlgo_t>(algorithm), &bytes);
      break;
    case Operation::kBwdFilter:
      status = cudnnGetConvolutionBackwardFilterWorkspaceSize(
          handle_, x_.get(), y_.get(), conv_.get(), w_.get(),
          static_cast<cudnnConvolutionBwdFilterAlgo_t>(algorithm), &bytes);
      break;
  }
  RETURN_IF_ERROR(ToStatus(status, "workspace size"));
  return static_cast<int64_t>(bytes);
}

absl::StatusOr<int64_t> LegacyConvolution::LargestWorkspace(cudnnMathType_t math_type,
                                                            int64_t limit) {
  int64_t largest = 0;
  // cudnnFind* also tries DEFAULT_MATH, whatever it is given.
  for (const cudnnMathType_t tried : {math_type, CUDNN_DEFAULT_MATH}) {
    RETURN_IF_ERROR(SetMathType(tried));
    for (int algorithm = 0; algorithm < AlgorithmCount(operation_); ++algorithm) {
      const absl::StatusOr<int64_t> bytes = WorkspaceOf(algorithm);
      if (bytes.ok() && *bytes <= limit) {
        largest = std::max(largest, *bytes);
      }
    }
  }
  return largest;
}

absl::StatusOr<std::vector<FoundAlgorithm>> LegacyConvolution::Expected(cudnnMathType_t math_type) {
  RETURN_IF_ERROR(SetMathType(math_type));
  const int most = AlgorithmCount(operation_) * kMathTypes;
  const auto size = static_cast<size_t>(most);
  int count = 0;
  switch (operation_) {
    case Operation::kFwd: {
      std::vector<cudnnConvolutionFwdAlgoPerf_t> perfs(size);
      RETURN_IF_ERROR(
          ToStatus(cudnnGetConvolutionForwardAlgorithm_v7(handle_, x_.get(), w_.get(), conv_.get(),
                                                          y_.get(), most, &count, perfs.data()),
                   "cudnnGetConvolutionForwardAlgorithm_v7"));
      return FromPerfs(perfs, count);
    }
    case Operation::kBwdData: {
      std::vector<cudnnConvolutionBwdDataAlgoPerf_t> perfs(size);
      RETURN_IF_ERROR(ToStatus(
          cudnnGetConvolutionBackwardDataAlgorithm_v7(handle_, w_.get(), y_.get(), conv_.get(),
                                                      x_.get(), most, &count, perfs.data()),
          "cudnnGetConvolutionBackwardDataAlgorithm_v7"));
      return FromPerfs(perfs, count);
    }
    case Operation::kBwdFilter: {
      std::vector<cudnnConvolutionBwdFilterAlgoPerf_t> perfs(size);
      RETURN_IF_ERROR(ToStatus(
          cudnnGetConvolutionBackwardFilterAlgorithm_v7(handle_, x_.get(), y_.get(), conv_.get(),
                                                        w_.get(), most, &count, perfs.data()),
          "cudnnGetConvolutionBackwardFilterAlgorithm_v7"));
      return FromPerfs(perfs, count);
    }
  }
  return absl::InternalError("operation");
}

absl::StatusOr<std::vector<FoundAlgorithm>> LegacyConvolution::Find(cudnnMathType_t math_type,
                                                                    const ConvPointers& tensors,
                                                                    void* workspace,
                                                                    int64_t workspace_bytes) {
  RETURN_IF_ERROR(SetMathType(math_type));
  const int most = AlgorithmCount(operation_) * kMathTypes;
  const auto size = static_cast<size_t>(most);
  const auto bytes = static_cast<size_t>(workspace_bytes);
  int count = 0;
  switch (operation_) {
    case Operation::kFwd: {
      std::vector<cudnnConvolutionFwdAlgoPerf_t> perfs(size);
      RETURN_IF_ERROR(ToStatus(
          cudnnFindConvolutionForwardAlgorithmEx(handle_, x_.get(), tensors.x, w_.get(), tensors.w,
                                                 conv_.get(), y_.get(), tensors.y, most, &count,
                                                 perfs.data(), workspace, bytes),
          "cudnnFindConvolutionForwardAlgorithmEx"));
      return FromPerfs(perfs, count);
    }
    case Operation::kBwdData: {
      std::vector<cudnnConvolutionBwdDataAlgoPerf_t> perfs(size);
      RETURN_IF_ERROR(ToStatus(
          cudnnFindConvolutionBackwardDataAlgorithmEx(handle_, w_.get(), tensors.w, y_.get(),
                                                      tensors.y, conv_.get(), x_.get(), tensors.x,
                                                      most, &count, perfs.data(), workspace, bytes),
          "cudnnFindConvolutionBackwardDataAlgorithmEx"));
      return FromPerfs(perfs, count);
    }
    case Operation::kBwdFilter: {
      std::vector<cudnnConvolutionBwdFilterAlgoPerf_t> perfs(size);
      RETURN_IF_ERROR(
          ToStatus(cudnnFindConvolutionBackwardFilterAlgorithmEx(
                       handle_, x_.get(), tensors.x, y_.get(), tensors.y, conv_.get(), w_.get(),
                       tensors.w, most, &count, perfs.data(), workspace, bytes),
                   "cudnnFindConvolutionBackwardFilterAlgorithmEx"));
      return FromPerfs(perfs, count);
    }
  }
  return absl::InternalError("operation");
}

absl::StatusOr<int64_t> LegacyConvolution::WorkspaceBytes(const LegacyAlgorithm& algorithm) {
  RETURN_IF_ERROR(SetMathType(algorithm.math_type));
  return WorkspaceOf(algorithm.algorithm);
}

absl::Status LegacyConvolution::Launch(const LegacyAlgorithm& algorithm,
                                       const ConvPointers& tensors, void* workspace,
                                       int64_t workspace_bytes) {
  RETURN_IF_ERROR(SetMathType(algorithm.math_type));
  const float one_f = 1.0F;
  const float zero_f = 0.0F;
  const double one_d = 1.0;
  const double zero_d = 0.0;
  const void* alpha = double_scale_ ? static_cast<const void*>(&one_d) : &one_f;
  const void* beta = double_scale_ ? static_cast<const void*>(&zero_d) : &zero_f;
  const auto bytes = static_cast<size_t>(workspace_bytes);
  switch (operation_) {
    case Operation::kFwd:
      return ToStatus(cudnnConvolutionForward(
                          handle_, alpha, x_.get(), tensors.x, w_.get(), tensors.w, conv_.get(),
                          static_cast<cudnnConvolutionFwdAlgo_t>(algorithm.algorithm), workspace,
                          bytes, beta, y_.get(), tensors.y),
                      "cudnnConvolutionForward");
    case Operation::kBwdData:
      return ToStatus(cudnnConvolutionBackwardData(
                          handle_, alpha, w_.get(), tensors.w, y_.get(), tensors.y, conv_.get(),
                          static_cast<cudnnConvolutionBwdDataAlgo_t>(algorithm.algorithm),
                          workspace, bytes, beta, x_.get(), tensors.x),
                      "cudnnConvolutionBackwardData");
    case Operation::kBwdFilter:
      return ToStatus(cudnnConvolutionBackwardFilter(
                          handle_, alpha, x_.get(), tensors.x, y_.get(), tensors.y, conv_.get(),
                          static_cast<cudnnConvolutionBwdFilterAlgo_t>(algorithm.algorithm),
                          workspace, bytes, beta, w_.get(), tensors.w),
                      "cudnnConvolutionBackwardFilter");
  }
  return absl::InternalError("operation");
}

}  // namespace convtune::worker::cudnn

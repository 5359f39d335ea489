#include "server/worker/cudnn/legacy_convolution.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "server/worker/cudnn/cudnn_status.h"
#include "server/worker/cudnn/graph_builder.h"

namespace convtune::worker::cudnn {
namespace {

std::vector<int> ToInts(const std::vector<int64_t>& values) {
  return {values.begin(), values.end()};
}

// What cuDNN has for each operation.
struct Forward {
  using Algorithm = cudnnConvolutionFwdAlgo_t;
  using Perf = cudnnConvolutionFwdAlgoPerf_t;
  static constexpr int kAlgorithms = CUDNN_CONVOLUTION_FWD_ALGO_COUNT;
  static constexpr char kName[] = "Forward";
  static constexpr auto kWorkspaceSize = cudnnGetConvolutionForwardWorkspaceSize;
  static constexpr auto kGet = cudnnGetConvolutionForwardAlgorithm_v7;
  static constexpr auto kFind = cudnnFindConvolutionForwardAlgorithmEx;
  static constexpr auto kRun = cudnnConvolutionForward;
  static constexpr char kRunName[] = "cudnnConvolutionForward";
};
struct BackwardData {
  using Algorithm = cudnnConvolutionBwdDataAlgo_t;
  using Perf = cudnnConvolutionBwdDataAlgoPerf_t;
  static constexpr int kAlgorithms = CUDNN_CONVOLUTION_BWD_DATA_ALGO_COUNT;
  static constexpr char kName[] = "BackwardData";
  static constexpr auto kWorkspaceSize = cudnnGetConvolutionBackwardDataWorkspaceSize;
  static constexpr auto kGet = cudnnGetConvolutionBackwardDataAlgorithm_v7;
  static constexpr auto kFind = cudnnFindConvolutionBackwardDataAlgorithmEx;
  static constexpr auto kRun = cudnnConvolutionBackwardData;
  static constexpr char kRunName[] = "cudnnConvolutionBackwardData";
};
struct BackwardFilter {
  using Algorithm = cudnnConvolutionBwdFilterAlgo_t;
  using Perf = cudnnConvolutionBwdFilterAlgoPerf_t;
  static constexpr int kAlgorithms = CUDNN_CONVOLUTION_BWD_FILTER_ALGO_COUNT;
  static constexpr char kName[] = "BackwardFilter";
  static constexpr auto kWorkspaceSize = cudnnGetConvolutionBackwardFilterWorkspaceSize;
  static constexpr auto kGet = cudnnGetConvolutionBackwardFilterAlgorithm_v7;
  static constexpr auto kFind = cudnnFindConvolutionBackwardFilterAlgorithmEx;
  static constexpr auto kRun = cudnnConvolutionBackwardFilter;
  static constexpr char kRunName[] = "cudnnConvolutionBackwardFilter";
};

// A tensor of the convolution: its descriptor and its memory.
template <typename Descriptor>
struct Operand {
  Descriptor descriptor;
  void* data;
};

// Each search and list has an entry for each algorithm and math type.
constexpr int kMathTypes = 4;

// The list that `ask` is given room for; `function` is what it calls.
template <typename Api, typename Ask>
absl::StatusOr<std::vector<FoundAlgorithm>> ListAlgorithms(const std::string& function,
                                                           const Ask& ask) {
  std::vector<typename Api::Perf> perfs(size_t{Api::kAlgorithms} * kMathTypes);
  int count = 0;
  RETURN_IF_ERROR(ToStatus(ask(static_cast<int>(perfs.size()), &count, perfs.data()), function));
  perfs.resize(std::min(perfs.size(), static_cast<size_t>(std::max(0, count))));
  std::vector<FoundAlgorithm> list;
  for (const auto& perf : perfs) {
    const bool timed = perf.status == CUDNN_STATUS_SUCCESS && perf.time > 0;
    list.push_back({{static_cast<int>(perf.algo), static_cast<int>(perf.mathType)},
                    perf.status,
                    timed ? perf.time * 1000.0 : 0.0,
                    static_cast<int64_t>(perf.memory),
                    perf.determinism == CUDNN_DETERMINISTIC});
  }
  return list;
}

}  // namespace

std::string LegacyObstacle(const ConvProblem& problem) {
  if (!problem.epilogue().empty()) {
    return "the legacy API is asked for no epilogue";
  }
  if (problem.data_type() == DataType::kE4M3 || problem.data_type() == DataType::kE5M2) {
    return "the legacy API has no fp8";
  }
  if (!problem.symmetric_padding()) {
    return "the legacy API has no asymmetric padding";
  }
  if (problem.layout() == TensorLayout::kStrided) {
    return "the legacy API's filters are packed NCHW or NHWC";
  }
  if (problem.sm_count_target() != 0) {
    return "the legacy API has no SM-count target";
  }
  for (const std::vector<int64_t>* values :
       {&problem.x_dims(), &problem.w_dims(), &problem.y_dims(), &problem.x_strides(),
        &problem.y_strides(), &problem.pad_low(), &problem.strides(), &problem.dilations()}) {
    for (const int64_t value : *values) {
      if (value > std::numeric_limits<int>::max()) {
        return "the legacy API's sizes and strides are 32-bit";
      }
    }
  }
  return "";
}

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

template <typename Visit>
auto LegacyConvolution::ForOperation(const ConvPointers& tensors, const Visit& visit) const {
  const Operand<cudnnTensorDescriptor_t> x = {x_.get(), tensors.x};
  const Operand<cudnnTensorDescriptor_t> y = {y_.get(), tensors.y};
  const Operand<cudnnFilterDescriptor_t> w = {w_.get(), tensors.w};
  switch (operation_) {
    case Operation::kBwdData:
      return visit(BackwardData(), w, y, x);
    case Operation::kBwdFilter:
      return visit(BackwardFilter(), x, y, w);
    case Operation::kFwd:
      break;
  }
  return visit(Forward(), x, w, y);
}

absl::StatusOr<int64_t> LegacyConvolution::WorkspaceOf(int algorithm) {
  return ForOperation({}, [&](auto api, auto a, auto b, auto out) -> absl::StatusOr<int64_t> {
    using Api = decltype(api);
    size_t bytes = 0;
    RETURN_IF_ERROR(ToStatus(
        Api::kWorkspaceSize(handle_, a.descriptor, b.descriptor, conv_.get(), out.descriptor,
                            static_cast<typename Api::Algorithm>(algorithm), &bytes),
        "workspace size"));
    return static_cast<int64_t>(bytes);
  });
}

absl::StatusOr<int64_t> LegacyConvolution::LargestWorkspace(cudnnMathType_t math_type,
                                                            int64_t limit) {
  const int algorithms =
      ForOperation({}, [](auto api, auto, auto, auto) { return decltype(api)::kAlgorithms; });
  int64_t largest = 0;
  // cudnnFind* also tries DEFAULT_MATH, whatever it is given.
  for (const cudnnMathType_t tried : {math_type, CUDNN_DEFAULT_MATH}) {
    RETURN_IF_ERROR(SetMathType(tried));
    for (int algorithm = 0; algorithm < algorithms; ++algorithm) {
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
  return ForOperation({}, [&](auto api, auto a, auto b, auto out) {
    using Api = decltype(api);
    return ListAlgorithms<Api>(absl::StrCat("cudnnGetConvolution", Api::kName, "Algorithm_v7"),
                               [&](int most, int* count, auto* perfs) {
                                 return Api::kGet(handle_, a.descriptor, b.descriptor, conv_.get(),
                                                  out.descriptor, most, count, perfs);
                               });
  });
}

absl::StatusOr<std::vector<FoundAlgorithm>> LegacyConvolution::Find(cudnnMathType_t math_type,
                                                                    const ConvPointers& tensors,
                                                                    void* workspace,
                                                                    int64_t workspace_bytes) {
  RETURN_IF_ERROR(SetMathType(math_type));
  return ForOperation(tensors, [&](auto api, auto a, auto b, auto out) {
    using Api = decltype(api);
    return ListAlgorithms<Api>(absl::StrCat("cudnnFindConvolution", Api::kName, "AlgorithmEx"),
                               [&](int most, int* count, auto* perfs) {
                                 return Api::kFind(handle_, a.descriptor, a.data, b.descriptor,
                                                   b.data, conv_.get(), out.descriptor, out.data,
                                                   most, count, perfs, workspace,
                                                   static_cast<size_t>(workspace_bytes));
                               });
  });
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
  return ForOperation(tensors, [&](auto api, auto a, auto b, auto out) {
    using Api = decltype(api);
    return ToStatus(
        Api::kRun(handle_, alpha, a.descriptor, a.data, b.descriptor, b.data, conv_.get(),
                  static_cast<typename Api::Algorithm>(algorithm.algorithm), workspace,
                  static_cast<size_t>(workspace_bytes), beta, out.descriptor, out.data),
        Api::kRunName);
  });
}

}  // namespace convtune::worker::cudnn

#include "server/worker/cudnn/graph_builder.h"

#include <utility>

#include "proto/base/status_macros.h"

namespace convtune::worker::cudnn {

cudnnDataType_t ToCudnn(DataType type) {
  switch (type) {
    case DataType::kF64:
      return CUDNN_DATA_DOUBLE;
    case DataType::kF32:
      return CUDNN_DATA_FLOAT;
    case DataType::kF16:
      return CUDNN_DATA_HALF;
    case DataType::kBF16:
      return CUDNN_DATA_BFLOAT16;
    case DataType::kI8:
      return CUDNN_DATA_INT8;
    case DataType::kI32:
      return CUDNN_DATA_INT32;
    case DataType::kE4M3:
      return CUDNN_DATA_FP8_E4M3;
    case DataType::kE5M2:
      return CUDNN_DATA_FP8_E5M2;
  }
  return CUDNN_DATA_FLOAT;
}

cudnnConvolutionMode_t ToCudnn(ConvolutionMode mode) {
  return mode == ConvolutionMode::kConvolution ? CUDNN_CONVOLUTION : CUDNN_CROSS_CORRELATION;
}

namespace {

int64_t MemoryElements(const std::vector<int64_t>& dims, const std::vector<int64_t>& strides) {
  int64_t last = 0;
  for (size_t i = 0; i < dims.size(); ++i) {
    last += (dims[i] - 1) * strides[i];
  }
  return last + 1;
}

// Names of the attributes of the three convolution operations.
struct ConvAttributes {
  cudnnBackendDescriptorType_t operation;
  cudnnBackendAttributeName_t conv, alpha, beta, x, w, y;
};

ConvAttributes AttributesOf(Operation operation) {
  switch (operation) {
    case Operation::kBwdData:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY};
    case Operation::kBwdFilter:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY};
    case Operation::kFwd:
      break;
  }
  return {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y};
}

cudnnPointwiseMode_t ModeOf(EpilogueOp op) {
  return op == EpilogueOp::kRelu ? CUDNN_POINTWISE_RELU_FWD : CUDNN_POINTWISE_ADD;
}

}  // namespace

class GraphBuilder {
 public:
  GraphBuilder(const ConvProblem& problem, const CudnnTarget& target) : problem_(problem) {
    graph_.target_ = target;
    graph_.sm_count_target_ = problem.sm_count_target();
  }

  absl::StatusOr<OperationGraph> Build() && {
    RETURN_IF_ERROR(AddConvolution());
    for (size_t i = 0; i < problem_.epilogue().size(); ++i) {
      RETURN_IF_ERROR(AddPointwise(problem_.epilogue()[i], i + 1 == problem_.epilogue().size()));
    }
    ASSIGN_OR_RETURN(graph_.graph_, Descriptor::Create(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR));
    graph_.graph_.Set(CUDNN_ATTR_OPERATIONGRAPH_OPS, graph_.operations_);
    if (graph_.target_.handle != nullptr) {
      graph_.graph_.Set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, graph_.target_.handle);
    }
    RETURN_IF_ERROR(graph_.graph_.Finalize());
    return std::move(graph_);
  }

 private:
  // Returns the tensor's index in parts_.
  absl::StatusOr<size_t> AddTensor(const std::vector<int64_t>& dims,
                                   const std::vector<int64_t>& strides, DataType type,
                                   bool is_virtual) {
    ASSIGN_OR_RETURN(Descriptor tensor, Descriptor::Create(CUDNN_BACKEND_TENSOR_DESCRIPTOR));
    tensor.Set(CUDNN_ATTR_TENSOR_UNIQUE_ID, ++last_uid_);
    tensor.Set(CUDNN_ATTR_TENSOR_DATA_TYPE, ToCudnn(type));
    tensor.Set(CUDNN_ATTR_TENSOR_DIMENSIONS, dims);
    tensor.Set(CUDNN_ATTR_TENSOR_STRIDES, strides);
    tensor.Set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, int64_t{problem_.alignment_bytes()});
    if (is_virtual) {
      tensor.Set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, true);
    }
    RETURN_IF_ERROR(tensor.Finalize());
    graph_.parts_.push_back(std::move(tensor));
    return graph_.parts_.size() - 1;
  }

  absl::StatusOr<size_t> AddInterface(TensorRole role, const std::vector<int64_t>& dims,
                                      const std::vector<int64_t>& strides, bool output) {
    const bool as_output = output || role == TensorRole::kResidual || role == TensorRole::kBias;
    const DataType type = as_output ? problem_.output_type() : problem_.data_type();
    ASSIGN_OR_RETURN(const size_t part, AddTensor(dims, strides, type, false));
    graph_.tensors_.push_back({role, last_uid_, type, MemoryElements(dims, strides), output});
    return part;
  }

  // y's shape: the output, or a virtual tensor when more operations follow.
  absl::StatusOr<size_t> AddY(bool last) {
    return last ? AddInterface(TensorRole::kY, problem_.y_dims(), problem_.y_strides(), true)
                : AddTensor(problem_.y_dims(), problem_.y_strides(), problem_.intermediate_type(),
                            true);
  }

  absl::Status AddConvolution() {
    const Operation op = problem_.operation();
    ASSIGN_OR_RETURN(const size_t x, AddInterface(TensorRole::kX, problem_.x_dims(),
                                                  problem_.x_strides(), op == Operation::kBwdData));
    ASSIGN_OR_RETURN(const size_t w,
                     AddInterface(TensorRole::kW, problem_.w_dims(), problem_.w_strides(),
                                  op == Operation::kBwdFilter));
    size_t y = 0;
    if (op == Operation::kFwd) {
      ASSIGN_OR_RETURN(y, AddY(problem_.epilogue().empty()));
    } else {
      ASSIGN_OR_RETURN(
          y, AddInterface(TensorRole::kY, problem_.y_dims(), problem_.y_strides(), false));
    }

    ASSIGN_OR_RETURN(Descriptor conv, Descriptor::Create(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR));
    conv.Set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, int64_t{problem_.spatial_rank()});
    conv.Set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, ToCudnn(problem_.compute_type()));
    conv.Set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, ToCudnn(problem_.mode()));
    conv.Set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, problem_.pad_low());
    conv.Set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, problem_.pad_high());
    conv.Set(CUDNN_ATTR_CONVOLUTION_DILATIONS, problem_.dilations());
    conv.Set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, problem_.strides());
    RETURN_IF_ERROR(conv.Finalize());

    const ConvAttributes names = AttributesOf(op);
    ASSIGN_OR_RETURN(Descriptor operation, Descriptor::Create(names.operation));
    operation.Set(names.conv, conv);
    operation.Set(names.x, graph_.parts_[x]);
    operation.Set(names.w, graph_.parts_[w]);
    operation.Set(names.y, graph_.parts_[y]);
    if (problem_.compute_type() == DataType::kF64) {
      operation.Set(names.alpha, 1.0);
      operation.Set(names.beta, 0.0);
    } else {
      operation.Set(names.alpha, 1.0F);
      operation.Set(names.beta, 0.0F);
    }
    RETURN_IF_ERROR(operation.Finalize());
    graph_.parts_.push_back(std::move(conv));
    graph_.operations_.push_back(std::move(operation));
    value_ = y;
    return absl::OkStatus();
  }

  absl::StatusOr<size_t> AddBias() {
    const int64_t channels = problem_.w_dims()[0];
    std::vector<int64_t> dims(problem_.y_dims().size(), 1);
    dims[1] = channels;
    // Size-1 dimensions in the packed form of the problem's layout.
    const bool channels_last = problem_.layout() == TensorLayout::kNhwc;
    std::vector<int64_t> strides(dims.size(), channels_last ? channels : 1);
    strides[0] = channels;
    strides[1] = 1;
    return AddInterface(TensorRole::kBias, dims, strides, false);
  }

  absl::Status AddPointwise(EpilogueOp op, bool last) {
    ASSIGN_OR_RETURN(Descriptor pointwise, Descriptor::Create(CUDNN_BACKEND_POINTWISE_DESCRIPTOR));
    pointwise.Set(CUDNN_ATTR_POINTWISE_MODE, ModeOf(op));
    // The arithmetic of a pointwise operation is floating point even where
    // the convolution's is not.
    const DataType math =
        problem_.intermediate_type() == DataType::kF64 ? DataType::kF64 : DataType::kF32;
    pointwise.Set(CUDNN_ATTR_POINTWISE_MATH_PREC, ToCudnn(math));
    RETURN_IF_ERROR(pointwise.Finalize());

    ASSIGN_OR_RETURN(Descriptor operation,
                     Descriptor::Create(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR));
    operation.Set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, pointwise);
    operation.Set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, graph_.parts_[value_]);
    if (op != EpilogueOp::kRelu) {
      absl::StatusOr<size_t> other =
          op == EpilogueOp::kBias
              ? AddBias()
              : AddInterface(TensorRole::kResidual, problem_.y_dims(), problem_.y_strides(), false);
      RETURN_IF_ERROR(other.status());
      operation.Set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, graph_.parts_[*other]);
    }
    ASSIGN_OR_RETURN(const size_t y, AddY(last));
    operation.Set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, graph_.parts_[y]);
    RETURN_IF_ERROR(operation.Finalize());
    graph_.parts_.push_back(std::move(pointwise));
    graph_.operations_.push_back(std::move(operation));
    value_ = y;
    return absl::OkStatus();
  }

  const ConvProblem& problem_;
  OperationGraph graph_;
  int64_t last_uid_ = 0;
  size_t value_ = 0;  // the tensor that the operations so far produce
};

absl::StatusOr<OperationGraph> OperationGraph::Create(const ConvProblem& problem,
                                                      const CudnnTarget& target) {
  return GraphBuilder(problem, target).Build();
}

absl::StatusOr<Descriptor> MakeEngine(const OperationGraph& graph, int64_t index) {
  ASSIGN_OR_RETURN(Descriptor engine, Descriptor::Create(CUDNN_BACKEND_ENGINE_DESCRIPTOR));
  engine.Set(CUDNN_ATTR_ENGINE_OPERATION_GRAPH, graph.descriptor());
  engine.Set(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, index);
  graph.SetDevice(CUDNN_ATTR_ENGINE_SM_COUNT_TARGET, CUDNN_ATTR_ENGINE_DEVICEPROP, &engine);
  RETURN_IF_ERROR(engine.Finalize());
  return engine;
}

absl::StatusOr<ExecutionPlan> ExecutionPlan::Create(const OperationGraph& graph,
                                                    const EngineConfig& config) {
  ASSIGN_OR_RETURN(const Descriptor engine, MakeEngine(graph, config.engine_index));
  std::vector<Descriptor> choices;
  for (const auto& [type, value] : config.knobs) {
    ASSIGN_OR_RETURN(Descriptor choice, Descriptor::Create(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR));
    choice.Set(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, static_cast<cudnnBackendKnobType_t>(type));
    choice.Set(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, value);
    RETURN_IF_ERROR(choice.Finalize());
    choices.push_back(std::move(choice));
  }
  ASSIGN_OR_RETURN(Descriptor engine_config,
                   Descriptor::Create(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR));
  engine_config.Set(CUDNN_ATTR_ENGINECFG_ENGINE, engine);
  if (!choices.empty()) {
    engine_config.Set(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, choices);
  }
  RETURN_IF_ERROR(engine_config.Finalize());

  ExecutionPlan plan;
  ASSIGN_OR_RETURN(plan.descriptor, Descriptor::Create(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR));
  plan.descriptor.Set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, engine_config);
  if (graph.target().handle != nullptr) {
    plan.descriptor.Set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, graph.target().handle);
  } else {
    plan.descriptor.Set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, *graph.target().device_properties);
  }
  RETURN_IF_ERROR(plan.descriptor.Finalize());
  ASSIGN_OR_RETURN(plan.workspace_bytes,
                   plan.descriptor.Get<int64_t>(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE));
  return plan;
}

}  // namespace convtune::worker::cudnn

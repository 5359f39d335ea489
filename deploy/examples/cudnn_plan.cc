#include "cudnn_plan.h"

#include <cuda_runtime_api.h>

#include <stdexcept>
#include <utility>

namespace example {
namespace {

// The tensors' unique ids.
constexpr std::int64_t kX = 1, kW = 2, kY = 3;

void Check(cudaError_t status, const char* what) {
  if (status != cudaSuccess) {
    throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(status));
  }
}

void Check(cudnnStatus_t status, const char* what) {
  if (status != CUDNN_STATUS_SUCCESS) {
    throw std::runtime_error(std::string(what) + ": " + cudnnGetErrorString(status));
  }
}

Descriptor Create(cudnnBackendDescriptorType_t type) {
  cudnnBackendDescriptor_t raw = nullptr;
  Check(cudnnBackendCreateDescriptor(type, &raw), "creating a descriptor");
  return Descriptor(raw);
}

void Set(const Descriptor& descriptor, cudnnBackendAttributeName_t name,
         cudnnBackendAttributeType_t type, std::int64_t count, const void* values) {
  Check(cudnnBackendSetAttribute(descriptor.get(), name, type, count, values),
        "setting an attribute");
}

void SetInts(const Descriptor& descriptor, cudnnBackendAttributeName_t name,
             const std::vector<std::int64_t>& values) {
  Set(descriptor, name, CUDNN_TYPE_INT64, static_cast<std::int64_t>(values.size()), values.data());
}

void SetInt(const Descriptor& descriptor, cudnnBackendAttributeName_t name, std::int64_t value) {
  SetInts(descriptor, name, {value});
}

void SetOther(const Descriptor& descriptor, cudnnBackendAttributeName_t name,
              const Descriptor& value) {
  cudnnBackendDescriptor_t raw = value.get();
  Set(descriptor, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &raw);
}

void Finalize(const Descriptor& descriptor, const char* what) {
  Check(cudnnBackendFinalize(descriptor.get()), what);
}

Descriptor MakeTensor(std::int64_t id, const Tensor& from, std::int64_t alignment) {
  Descriptor tensor = Create(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  SetInt(tensor, CUDNN_ATTR_TENSOR_UNIQUE_ID, id);
  Set(tensor, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &from.type);
  SetInts(tensor, CUDNN_ATTR_TENSOR_DIMENSIONS, from.dims);
  SetInts(tensor, CUDNN_ATTR_TENSOR_STRIDES, from.strides);
  SetInt(tensor, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, alignment);
  Finalize(tensor, "a tensor");
  return tensor;
}

Descriptor MakeConvolution(const Convolution& from) {
  Descriptor convolution = Create(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  SetInt(convolution, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS,
         static_cast<std::int64_t>(from.stride.size()));
  Set(convolution, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &from.compute);
  Set(convolution, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &from.mode);
  SetInts(convolution, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, from.pad_low);
  SetInts(convolution, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, from.pad_high);
  SetInts(convolution, CUDNN_ATTR_CONVOLUTION_DILATIONS, from.dilation);
  SetInts(convolution, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, from.stride);
  Finalize(convolution, "the convolution");
  return convolution;
}

// The three operations differ in the names of what they take alone.
struct Names {
  cudnnBackendDescriptorType_t operation;
  cudnnBackendAttributeName_t convolution, x, w, y, alpha, beta;
};

Names NamesOf(Operation operation) {
  switch (operation) {
    case Operation::kBwdData:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};
    case Operation::kBwdFilter:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};
    case Operation::kFwd:
      break;
  }
  return {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
}

// Appends the graph and what it is made of; the graph is the last part.
void AddGraph(const Device& device, const Convolution& problem, std::vector<Descriptor>* parts) {
  Descriptor x = MakeTensor(kX, problem.x, problem.alignment);
  Descriptor w = MakeTensor(kW, problem.w, problem.alignment);
  Descriptor y = MakeTensor(kY, problem.y, problem.alignment);
  Descriptor convolution = MakeConvolution(problem);
  const Names names = NamesOf(problem.operation);
  Descriptor operation = Create(names.operation);
  SetOther(operation, names.convolution, convolution);
  SetOther(operation, names.x, x);
  SetOther(operation, names.w, w);
  SetOther(operation, names.y, y);
  const bool is_double = problem.compute == CUDNN_DATA_DOUBLE;
  const float ones[2] = {1.0F, 0.0F};
  const double doubles[2] = {1.0, 0.0};
  const auto scale = is_double ? CUDNN_TYPE_DOUBLE : CUDNN_TYPE_FLOAT;
  Set(operation, names.alpha, scale, 1,
      is_double ? static_cast<const void*>(&doubles[0]) : &ones[0]);
  Set(operation, names.beta, scale, 1,
      is_double ? static_cast<const void*>(&doubles[1]) : &ones[1]);
  Finalize(operation, "the operation");
  Descriptor graph = Create(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  SetOther(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, operation);
  if (device.handle != nullptr) {
    Set(graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &device.handle);
  }
  Finalize(graph, "the operation graph");
  for (Descriptor* part : {&x, &w, &y, &convolution, &operation, &graph}) {
    parts->push_back(std::move(*part));
  }
}

}  // namespace

Device DeviceFromProfile(const std::string& properties) {
  Device device;
  device.properties = Create(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  Set(device.properties, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
      static_cast<std::int64_t>(properties.size()), properties.data());
  Finalize(device.properties, "the device profile");
  return device;
}

Plan MakePlan(const Device& device, const Convolution& problem,
              const convtune::client::Choice& choice) {
  Plan plan;
  AddGraph(device, problem, &plan.parts);
  Descriptor engine = Create(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  SetOther(engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, plan.parts.back());
  SetInt(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, choice.engine_index);
  if (device.properties != nullptr) {
    SetOther(engine, CUDNN_ATTR_ENGINE_DEVICEPROP, device.properties);
  }
  Finalize(engine, "the engine");
  Descriptor config = Create(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
  SetOther(config, CUDNN_ATTR_ENGINECFG_ENGINE, engine);
  std::vector<cudnnBackendDescriptor_t> knobs;
  for (const auto& [type, value] : choice.knobs) {
    Descriptor knob = Create(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
    const auto knob_type = static_cast<cudnnBackendKnobType_t>(type);
    Set(knob, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &knob_type);
    SetInt(knob, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, value);
    Finalize(knob, "a knob");
    knobs.push_back(knob.get());
    plan.parts.push_back(std::move(knob));
  }
  if (!knobs.empty()) {
    Set(config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR,
        static_cast<std::int64_t>(knobs.size()), knobs.data());
  }
  Finalize(config, "the engine config");
  plan.plan = Create(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  SetOther(plan.plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
  if (device.handle != nullptr) {
    Set(plan.plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &device.handle);
  } else {
    SetOther(plan.plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, device.properties);
  }
  Finalize(plan.plan, "the plan");
  std::int64_t count = 0;
  Check(cudnnBackendGetAttribute(plan.plan.get(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                 CUDNN_TYPE_INT64, 1, &count, &plan.workspace_bytes),
        "asking for the workspace");
  plan.parts.push_back(std::move(engine));
  plan.parts.push_back(std::move(config));
  return plan;
}

DeviceBuffer::DeviceBuffer(std::int64_t bytes) {
  if (bytes == 0) return;
  void* memory = nullptr;
  Check(cudaMalloc(&memory, static_cast<std::size_t>(bytes)), "taking device memory");
  memory_.reset(memory);
  Check(cudaMemset(memory, 0, static_cast<std::size_t>(bytes)), "clearing device memory");
}

void DeviceBuffer::Free::operator()(void* memory) const { cudaFree(memory); }

void Execute(const Device& device, const Plan& plan, void* x, void* w, void* y, void* workspace) {
  Descriptor pack = Create(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  void* const data[] = {x, w, y};
  const std::int64_t ids[] = {kX, kW, kY};
  Set(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, 3, data);
  Set(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, 3, ids);
  Set(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
  Finalize(pack, "the variant pack");
  Check(cudnnBackendExecute(device.handle, plan.plan.get(), pack.get()), "running the plan");
}

void Synchronize() { Check(cudaDeviceSynchronize(), "waiting for the GPU"); }

}  // namespace example

#include "cudnn_plan.h"

#include <cuda_runtime_api.h>

#include <cstddef>
#include <map>
#include <numeric>
#include <optional>
#include <regex>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>

namespace example {
namespace {

using Dims = std::vector<std::int64_t>;

std::vector<std::string> Split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, separator);) parts.push_back(part);
  return parts;
}

Dims ReadList(const std::string& text) {
  Dims list;
  for (const std::string& part : Split(text, 'x')) list.push_back(std::stoll(part));
  return list;
}

struct Type {
  const char* name;
  cudnnDataType_t type;
  std::int64_t bytes;
};
constexpr Type kTypes[] = {{"f64", CUDNN_DATA_DOUBLE, 8},    {"f32", CUDNN_DATA_FLOAT, 4},
                           {"f16", CUDNN_DATA_HALF, 2},      {"bf16", CUDNN_DATA_BFLOAT16, 2},
                           {"i8", CUDNN_DATA_INT8, 1},       {"i32", CUDNN_DATA_INT32, 4},
                           {"e4m3", CUDNN_DATA_FP8_E4M3, 1}, {"e5m2", CUDNN_DATA_FP8_E5M2, 1}};

cudnnDataType_t TypeOf(const std::string& name) {
  for (const Type& type : kTypes) {
    if (type.name == name) return type.type;
  }
  throw std::runtime_error("no data type of a canonical problem: " + name);
}

Dims Packed(const Dims& dims, bool channels_last) {
  Dims strides(dims.size());
  std::int64_t next = channels_last ? dims[1] : 1;
  for (std::size_t i = dims.size(); i-- > 0;) {
    if (channels_last && i == 1) {
      strides[i] = 1;
      continue;
    }
    strides[i] = next;
    next *= dims[i];
  }
  return strides;
}

// Sizes of the output; K is the filter's first dimension.
Dims OutputOf(const Convolution& c) {
  Dims dims = {c.x.dims[0], c.w.dims[0]};
  for (std::size_t i = 0; i < c.pad_low.size(); ++i) {
    const std::int64_t filter = c.dilation[i] * (c.w.dims[i + 2] - 1) + 1;
    dims.push_back((c.x.dims[i + 2] + c.pad_low[i] + c.pad_high[i] - filter) / c.stride[i] + 1);
  }
  return dims;
}

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

void SetPart(const Descriptor& descriptor, cudnnBackendAttributeName_t name,
             cudnnBackendDescriptor_t part) {
  Set(descriptor, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &part);
}

void Finalize(const Descriptor& descriptor, const char* what) {
  Check(cudnnBackendFinalize(descriptor.get()), what);
}

// A virtual tensor is between two operations, and never in memory.
Descriptor MakeTensor(std::int64_t id, const Tensor& from, std::int64_t alignment,
                      bool is_virtual = false) {
  Descriptor tensor = Create(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  SetInt(tensor, CUDNN_ATTR_TENSOR_UNIQUE_ID, id);
  Set(tensor, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &from.type);
  SetInts(tensor, CUDNN_ATTR_TENSOR_DIMENSIONS, from.dims);
  SetInts(tensor, CUDNN_ATTR_TENSOR_STRIDES, from.strides);
  SetInt(tensor, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, alignment);
  if (is_virtual) {
    Set(tensor, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
  }
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

// The three operations differ in the names of their attributes alone.
struct Names {
  cudnnBackendDescriptorType_t operation;
  cudnnBackendAttributeName_t convolution, x, w, y, alpha, beta;
};

// By Operation.
constexpr Names kNames[] = {
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA}};

// Builds the operations of a graph, each behind the one before it.
class GraphMaker {
 public:
  GraphMaker(const Convolution& problem, Plan* plan) : problem_(problem), plan_(*plan) {}

  // The graph is the last of the plan's parts.
  void Make(const Device& device) {
    AddConvolution();
    for (std::size_t i = 0; i < problem_.epilogue.size(); ++i) {
      AddPointwise(problem_.epilogue[i], i + 1 == problem_.epilogue.size());
    }
    Descriptor graph = Create(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    Set(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
        static_cast<std::int64_t>(operations_.size()), operations_.data());
    if (device.handle != nullptr) {
      Set(graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &device.handle);
    }
    Finalize(graph, "the operation graph");
    Keep(std::move(graph));
  }

 private:
  // Returns what it keeps.
  cudnnBackendDescriptor_t Keep(Descriptor part) {
    plan_.parts.push_back(std::move(part));
    return plan_.parts.back().get();
  }

  // A tensor in memory. The graph's id of it is its number in plan.tensor_bytes, from 1 on.
  cudnnBackendDescriptor_t AddMemory(const Tensor& tensor) {
    plan_.tensor_bytes.push_back(tensor.bytes());
    const auto id = static_cast<std::int64_t>(plan_.tensor_bytes.size());
    return Keep(MakeTensor(id, tensor, problem_.alignment));
  }

  // The output of an operation: y behind the last one.
  cudnnBackendDescriptor_t AddOutput(bool last) {
    if (last) return y_;
    Tensor between = problem_.y;
    between.type = problem_.intermediate;
    return Keep(MakeTensor(next_virtual_id_++, between, problem_.alignment, /*is_virtual=*/true));
  }

  void AddConvolution() {
    const cudnnBackendDescriptor_t x = AddMemory(problem_.x);
    const cudnnBackendDescriptor_t w = AddMemory(problem_.w);
    y_ = AddMemory(problem_.y);
    value_ = AddOutput(problem_.epilogue.empty());
    const Names& names = kNames[static_cast<std::size_t>(problem_.operation)];
    Descriptor operation = Create(names.operation);
    SetPart(operation, names.convolution, Keep(MakeConvolution(problem_)));
    SetPart(operation, names.x, x);
    SetPart(operation, names.w, w);
    SetPart(operation, names.y, value_);
    const bool is_double = problem_.compute == CUDNN_DATA_DOUBLE;
    const float ones[2] = {1.0F, 0.0F};
    const double doubles[2] = {1.0, 0.0};
    const auto scale = is_double ? CUDNN_TYPE_DOUBLE : CUDNN_TYPE_FLOAT;
    Set(operation, names.alpha, scale, 1,
        is_double ? static_cast<const void*>(&doubles[0]) : &ones[0]);
    Set(operation, names.beta, scale, 1,
        is_double ? static_cast<const void*>(&doubles[1]) : &ones[1]);
    Finalize(operation, "the operation");
    operations_.push_back(Keep(std::move(operation)));
  }

  void AddPointwise(Epilogue kind, bool last) {
    const cudnnPointwiseMode_t mode =
        kind == Epilogue::kRelu ? CUDNN_POINTWISE_RELU_FWD : CUDNN_POINTWISE_ADD;
    const cudnnDataType_t math =
        problem_.intermediate == CUDNN_DATA_DOUBLE ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT;
    Descriptor pointwise = Create(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    Set(pointwise, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    Set(pointwise, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &math);
    Finalize(pointwise, "a pointwise step");
    Descriptor operation = Create(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    SetPart(operation, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, Keep(std::move(pointwise)));
    SetPart(operation, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, value_);
    if (kind != Epilogue::kRelu) {
      const Tensor added = kind == Epilogue::kBias ? BiasOf(problem_) : problem_.y;
      SetPart(operation, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, AddMemory(added));
    }
    value_ = AddOutput(last);
    SetPart(operation, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, value_);
    Finalize(operation, "a pointwise operation");
    operations_.push_back(Keep(std::move(operation)));
  }

  const Convolution& problem_;
  Plan& plan_;
  std::vector<cudnnBackendDescriptor_t> operations_;
  std::int64_t next_virtual_id_ = 1000;  // behind those in memory
  cudnnBackendDescriptor_t y_ = nullptr;
  cudnnBackendDescriptor_t value_ = nullptr;  // what the operations so far write
};

// The flat object "properties" of a profile, or the text where it has none, without the spaces
// between its words, which cuDNN refuses.
std::string PropertiesOf(const std::string& profile) {
  std::smatch found;
  const bool named =
      std::regex_search(profile, found, std::regex(R"("properties"\s*:\s*(\{[^}]*\}))"));
  const std::regex space_or_string(R"(\s|("(?:[^"\\]|\\.)*"))");
  return std::regex_replace(named ? found[1].str() : profile, space_or_string, "$1");
}

}  // namespace

std::int64_t Tensor::bytes() const {
  std::int64_t last = 0;
  for (std::size_t i = 0; i < dims.size(); ++i) last += (dims[i] - 1) * strides[i];
  const auto* own = kTypes;
  while (own->type != type) ++own;  // every tensor's is one of them
  return (last + 1) * own->bytes;
}

Tensor BiasOf(const Convolution& convolution) {
  const Tensor& y = convolution.y;
  Tensor bias;
  bias.type = y.type;
  bias.dims.assign(y.dims.size(), 1);
  bias.dims[1] = y.dims[1];
  bias.strides = Packed(bias.dims, y.strides[1] == 1);
  return bias;
}

Convolution Parse(const std::string& canonical) {
  Convolution c;
  std::map<std::string, std::string> values;
  std::optional<cudnnDataType_t> input;
  bool channels_last = false;
  for (const std::string& token : Split(canonical, ',')) {
    const std::size_t equals = token.find('=');
    if (equals != std::string::npos) {
      values[token.substr(0, equals)] = token.substr(equals + 1);
    } else if (token == "fwd" || token == "bwd_data" || token == "bwd_filter") {
      c.operation = token == "fwd"        ? Operation::kFwd
                    : token == "bwd_data" ? Operation::kBwdData
                                          : Operation::kBwdFilter;
    } else if (token == "nhwc" || token == "nchw") {
      channels_last = token == "nhwc";
    } else {
      input = TypeOf(token);
    }
  }
  if (values.count("sms") > 0) throw std::runtime_error("this example does without sms");
  if (!input || values.count("x") == 0 || values.count("w") == 0) {
    throw std::runtime_error("no canonical problem: " + canonical);
  }
  c.x.dims = ReadList(values["x"]);
  c.w.dims = ReadList(values["w"]);
  for (const std::string& pad : Split(values["pad"], 'x')) {
    const std::vector<std::string> ends = Split(pad, ':');
    c.pad_low.push_back(std::stoll(ends.front()));
    c.pad_high.push_back(std::stoll(ends.back()));
  }
  c.stride = ReadList(values["stride"]);
  c.dilation = ReadList(values["dilation"]);
  c.y.dims = OutputOf(c);
  const auto strides = [&](const std::string& name, const Tensor& tensor) {
    return values.count(name) > 0 ? ReadList(values[name]) : Packed(tensor.dims, channels_last);
  };
  c.x.strides = strides("xstrides", c.x);
  c.w.strides = strides("wstrides", c.w);
  c.y.strides = strides("ystrides", c.y);
  c.x.type = c.w.type = c.y.type = *input;
  Tensor& written = c.operation == Operation::kFwd       ? c.y
                    : c.operation == Operation::kBwdData ? c.x
                                                         : c.w;
  for (const std::string& name : Split(values["epilogue"], '+')) {
    c.epilogue.push_back(name == "add"    ? Epilogue::kAdd
                         : name == "bias" ? Epilogue::kBias
                                          : Epilogue::kRelu);
  }
  // The default of out=.
  if (*input == CUDNN_DATA_INT8 && c.epilogue.empty()) written.type = CUDNN_DATA_INT32;
  if (values.count("out") > 0) written.type = TypeOf(values["out"]);
  c.compute = TypeOf(values["acc"]);
  if (!c.epilogue.empty()) c.intermediate = TypeOf(values["mid"]);
  if (values["mode"] == "conv") c.mode = CUDNN_CONVOLUTION;
  if (values.count("align") > 0) c.alignment = std::stoll(values["align"]);
  return c;
}

Device DeviceFromProfile(const std::string& profile) {
  const std::string properties = PropertiesOf(profile);
  Device device;
  device.properties = Create(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  Set(device.properties, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
      static_cast<std::int64_t>(properties.size()), properties.data());
  Finalize(device.properties, "the device profile");
  return device;
}

void RequireOwn(const Device& device, const convtune::client::Environment& environment) {
  const std::size_t version = cudnnGetVersion();
  const std::string own = std::to_string(version / 10000) + "." +
                          std::to_string(version / 100 % 100) + "." + std::to_string(version % 100);
  if (environment.cudnn_version != own) {
    throw std::runtime_error("the answer holds for cuDNN " + environment.cudnn_version +
                             ", this is " + own);
  }
  if (device.handle == nullptr) return;
  int gpu = 0;
  int sms = 0;
  int major = 0;
  int minor = 0;
  Check(cudaGetDevice(&gpu), "asking for the GPU");
  Check(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, gpu), "asking the GPU");
  Check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, gpu), "asking the GPU");
  Check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, gpu), "asking the GPU");
  if (environment.profile || environment.sm_count != sms ||
      environment.compute_capability != std::to_string(major) + "." + std::to_string(minor)) {
    throw std::runtime_error("the answer holds for " + environment.text + ", not for this GPU");
  }
}

Plan MakePlan(const Device& device, const Convolution& problem,
              const convtune::client::Candidate& candidate) {
  Plan plan;
  GraphMaker(problem, &plan).Make(device);
  Descriptor engine = Create(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  SetPart(engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, plan.parts.back().get());
  SetInt(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, candidate.engine_index);
  if (device.properties != nullptr) {
    SetPart(engine, CUDNN_ATTR_ENGINE_DEVICEPROP, device.properties.get());
  }
  Finalize(engine, "the engine");
  Descriptor config = Create(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
  SetPart(config, CUDNN_ATTR_ENGINECFG_ENGINE, engine.get());
  std::vector<cudnnBackendDescriptor_t> knobs;
  for (const auto& [type, value] : candidate.knobs) {
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
  SetPart(plan.plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config.get());
  if (device.handle != nullptr) {
    Set(plan.plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &device.handle);
  } else {
    SetPart(plan.plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, device.properties.get());
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

void Execute(const Device& device, const Plan& plan, const std::vector<void*>& tensors,
             void* workspace) {
  Descriptor pack = Create(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  std::vector<std::int64_t> ids(plan.tensor_bytes.size());
  std::iota(ids.begin(), ids.end(), 1);
  const auto count = static_cast<std::int64_t>(ids.size());
  Set(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count, tensors.data());
  Set(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, ids.data());
  Set(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
  Finalize(pack, "the variant pack");
  Check(cudnnBackendExecute(device.handle, plan.plan.get(), pack.get()), "running the plan");
}

void Synchronize() { Check(cudaDeviceSynchronize(), "waiting for the GPU"); }

}  // namespace example

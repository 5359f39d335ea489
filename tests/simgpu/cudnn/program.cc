#include "tests/simgpu/cudnn/program.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/base/status_macros.h"
#include "tests/simgpu/cudnn/element.h"

namespace convtune::simgpu {
namespace {

using Json = nlohmann::json;

struct OperationRow {
  std::string_view name;
  Operation operation;
  const char *x, *w, *y;
};
constexpr OperationRow kOperations[] = {
    {"CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR", Operation::kFwd, "X", "W", "Y"},
    {"CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR", Operation::kBwdData, "dX", "W",
     "dY"},
    {"CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR", Operation::kBwdFilter, "X",
     "dW", "dY"}};

// Reads one operation graph. An absent key reads as null, which is refused where it is used.
class Reader {
 public:
  absl::StatusOr<Program> Read(const Json& graph) {
    for (const Json& tensor : At(graph, "tensors")) RETURN_IF_ERROR(ReadTensor(tensor));
    const Json& nodes = At(graph, "nodes");
    if (nodes.empty()) return absl::InvalidArgumentError("nodes: must not be empty");
    RETURN_IF_ERROR(ReadConvolution(nodes.front()));
    for (size_t i = 1; i < nodes.size(); ++i) RETURN_IF_ERROR(ReadPointwise(nodes[i]));
    return program_;
  }

 private:
  static const Json& At(const Json& object, const char* key) {
    static const Json null;
    const auto found = object.find(key);
    return found == object.end() ? null : *found;
  }

  static std::string Text(const Json& object, const char* key) {
    const Json& value = At(object, key);
    return value.is_string() ? value.get<std::string>() : "";
  }

  // Of a tensor, N and C first; of a convolution, as `fill` for the depth that 2-D ones lack.
  template <size_t N>
  static absl::Status ReadList(const Json& object, const char* key, size_t in_front, int64_t fill,
                               std::array<int64_t, N>* list) {
    const Json& values = At(object, key);
    if (!values.is_array() || values.size() > N || values.size() + 1 < N) {
      return absl::InvalidArgumentError(absl::StrCat(key, ": must be a list for 2-D or 3-D"));
    }
    std::vector<int64_t> numbers;
    for (const Json& value : values) {
      if (!value.is_number_integer()) {
        return absl::InvalidArgumentError(absl::StrCat(key, ": must be integers"));
      }
      numbers.push_back(value.get<int64_t>());
    }
    if (numbers.size() < N) {
      numbers.insert(numbers.begin() + static_cast<std::ptrdiff_t>(in_front), fill);
    }
    std::copy(numbers.begin(), numbers.end(), list->begin());
    return absl::OkStatus();
  }

  absl::Status ReadTensor(const Json& tensor) {
    Operand operand;
    const std::string name = Text(tensor, "name");
    if (!absl::SimpleAtoi(name, &operand.uid)) {
      return absl::InvalidArgumentError("tensors.name: must be a unique id");
    }
    const std::string type_name = Text(tensor, "dataType");
    const auto* const type =
        std::find_if(std::begin(kCudnnTypes), std::end(kCudnnTypes),
                     [&](const CudnnType& row) { return row.name == type_name; });
    if (type == std::end(kCudnnTypes) || At(tensor, "vectCount") != 1) {
      return absl::UnimplementedError(absl::StrCat("tensors.dataType: ", type_name));
    }
    operand.tensor.type = type->type;
    const Json& alignment = At(tensor, "ptrAlignment");
    if (!alignment.is_number_integer()) {
      return absl::InvalidArgumentError("tensors.ptrAlignment: must be an integer");
    }
    operand.alignment = alignment.get<int64_t>();
    RETURN_IF_ERROR(ReadList(tensor, "dim", 2, 1, &operand.tensor.dims));
    RETURN_IF_ERROR(ReadList(tensor, "stride", 2, 0, &operand.tensor.strides));
    tensors_[name] = operand;
    return absl::OkStatus();
  }

  absl::StatusOr<Operand> Find(const Json& node, const char* key) const {
    const auto found = tensors_.find(Text(node, key));
    if (found != tensors_.end()) return found->second;
    return absl::InvalidArgumentError(absl::StrCat("nodes.", key, ": names no tensor"));
  }

  absl::Status ReadConvolution(const Json& node) {
    Convolution& conv = program_.convolution;
    const std::string name = Text(node, "operation");
    const auto* const row = std::find_if(std::begin(kOperations), std::end(kOperations),
                                         [&](const OperationRow& of) { return of.name == name; });
    if (row == std::end(kOperations) || At(node, "alpha") != 1.0 || At(node, "beta") != 0.0) {
      return absl::UnimplementedError(absl::StrCat("nodes.operation: ", node.dump()));
    }
    conv.operation = row->operation;
    ASSIGN_OR_RETURN(program_.x, Find(node, row->x));
    ASSIGN_OR_RETURN(program_.w, Find(node, row->w));
    ASSIGN_OR_RETURN(program_.y, Find(node, row->y));
    program_.FinishConvolution();
    const char* const pad = node.contains("pad_lower") ? "pad_lower" : "pad";
    RETURN_IF_ERROR(ReadList(node, pad, 0, 0, &conv.pad));
    RETURN_IF_ERROR(ReadList(node, "stride", 0, 1, &conv.stride));
    RETURN_IF_ERROR(ReadList(node, "dilation", 0, 1, &conv.dilation));
    if (node.contains("groupCount")) conv.groups = node["groupCount"].get<int64_t>();
    conv.flipped = Text(node, "mode") == "CUDNN_CONVOLUTION";
    return absl::OkStatus();
  }

  absl::Status ReadPointwise(const Json& node) {
    Pointwise pointwise;
    const std::string mode = Text(node, "pointwiseMode");
    pointwise.relu = mode == "CUDNN_POINTWISE_RELU_FWD";
    ASSIGN_OR_RETURN(const Operand x, Find(node, "X"));
    const bool plain =
        At(node, "alpha1") == 1.0 && At(node, "alpha2") == 1.0 &&
        (!pointwise.relu || (At(node, "lowerClip") == 0.0 && At(node, "lowerClipSlope") == 0.0));
    if (!plain || (!pointwise.relu && mode != "CUDNN_POINTWISE_ADD") ||
        x.uid != program_.output.uid) {
      return absl::UnimplementedError(absl::StrCat("nodes.pointwiseMode: ", node.dump()));
    }
    if (!pointwise.relu) {
      ASSIGN_OR_RETURN(pointwise.other, Find(node, "B"));
    }
    ASSIGN_OR_RETURN(program_.output, Find(node, "Y"));
    pointwise.result = program_.output.tensor.type;
    program_.epilogue.push_back(pointwise);
    return absl::OkStatus();
  }

  std::map<std::string, Operand> tensors_;
  Program program_;
};

std::string TextOf(const Tensor& tensor) {
  return absl::StrCat(static_cast<int>(tensor.type), ":", absl::StrJoin(tensor.dims, "x"), ":",
                      absl::StrJoin(tensor.strides, "x"), ";");
}

template <typename Visit>
void ForEachElement(const Tensor& tensor, const Visit& visit) {
  const auto& dims = tensor.dims;
  for (int64_t n = 0; n < dims[0]; ++n)
    for (int64_t c = 0; c < dims[1]; ++c)
      for (int64_t d = 0; d < dims[2]; ++d)
        for (int64_t h = 0; h < dims[3]; ++h)
          for (int64_t w = 0; w < dims[4]; ++w) visit(std::array<int64_t, 5>{n, c, d, h, w});
}

int64_t OffsetOf(const Tensor& tensor, std::array<int64_t, 5> place) {
  int64_t offset = 0;
  for (size_t i = 0; i < place.size(); ++i) {
    if (tensor.dims[i] > 1) offset += place[i] * tensor.strides[i];
  }
  return offset;
}

template <typename T>
std::vector<char> Finish(const Program& program, const std::vector<T>& sums,
                         const std::map<int64_t, const void*>& data) {
  const Tensor& output = program.output.tensor;
  const auto size = static_cast<size_t>(SizeOf(output.type));
  std::vector<char> bytes(static_cast<size_t>(output.Bytes()));
  const auto put = [&](int64_t offset, double value) {
    EncodeElement(output.type, value, bytes.data() + static_cast<size_t>(offset) * size);
  };
  if (program.epilogue.empty()) {
    for (size_t i = 0; i < sums.size(); ++i) {
      put(static_cast<int64_t>(i), static_cast<double>(sums[i]));
    }
    return bytes;
  }
  const Tensor& summed = program.convolution.Output();
  ForEachElement(output, [&](const std::array<int64_t, 5>& place) {
    double value = RoundTo(summed.type,
                           static_cast<double>(sums[static_cast<size_t>(OffsetOf(summed, place))]));
    for (const Pointwise& pointwise : program.epilogue) {
      if (pointwise.relu) {
        value = value < 0 ? 0 : value;  // NaN stays
      } else {
        const Tensor& other = pointwise.other.tensor;
        value += DecodeElement(other.type, static_cast<const char*>(data.at(pointwise.other.uid)) +
                                               OffsetOf(other, place) * SizeOf(other.type));
      }
      if (pointwise.result != DataType::kF64) value = static_cast<float>(value);
      value = RoundTo(pointwise.result, value);
    }
    put(OffsetOf(output, place), value);
  });
  return bytes;
}

}  // namespace

absl::StatusOr<Program> Program::Read(std::string_view plan_json) {
  const Json plan = Json::parse(plan_json, nullptr, /*allow_exceptions=*/false);
  const auto graph = plan.find("operationGraph");
  if (plan.is_discarded() || graph == plan.end()) {
    return absl::InvalidArgumentError("operationGraph: is missing");
  }
  return Reader().Read(*graph);
}

void Program::FinishConvolution() {
  convolution.x = x.tensor, convolution.w = w.tensor, convolution.y = y.tensor;
  const Operation operation = convolution.operation;
  output = operation == Operation::kFwd ? y : operation == Operation::kBwdData ? x : w;
}

std::vector<Operand> Program::Inputs() const {
  std::vector<Operand> inputs;
  const Operation operation = convolution.operation;
  if (operation != Operation::kBwdData) inputs.push_back(x);
  if (operation != Operation::kBwdFilter) inputs.push_back(w);
  if (operation != Operation::kFwd) inputs.push_back(y);
  for (const Pointwise& pointwise : epilogue) {
    if (!pointwise.relu) inputs.push_back(pointwise.other);
  }
  return inputs;
}

std::string Program::Text() const {
  std::string text =
      absl::StrCat(std::string(Name(convolution.operation)), ";", TextOf(convolution.x),
                   TextOf(convolution.w), TextOf(convolution.y), TextOf(output.tensor),
                   absl::StrJoin(convolution.pad, "x"), ";", absl::StrJoin(convolution.stride, "x"),
                   ";", absl::StrJoin(convolution.dilation, "x"), ";", convolution.groups, ";",
                   convolution.flipped ? "conv" : "xcorr", ";", convolution.tf32 ? "tf32" : "");
  for (const Pointwise& pointwise : epilogue) {
    absl::StrAppend(&text, ";", pointwise.relu ? "relu" : TextOf(pointwise.other.tensor),
                    static_cast<int>(pointwise.result));
  }
  return text;
}

std::vector<char> Program::Compute(const std::map<int64_t, const void*>& data) const {
  const auto memory = [&](const Operand& operand) {
    const auto found = data.find(operand.uid);
    return found == data.end() ? nullptr : found->second;
  };
  const auto sums = [&](auto convolve) {
    return Finish(*this, convolve(convolution, memory(x), memory(w), memory(y)), data);
  };
  return SumsInDouble(convolution) ? sums(Convolve<double>) : sums(Convolve<float>);
}

}  // namespace convtune::simgpu

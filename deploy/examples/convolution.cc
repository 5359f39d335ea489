#include "convolution.h"

#include <map>
#include <optional>
#include <sstream>
#include <stdexcept>

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

std::optional<cudnnDataType_t> TypeOf(const std::string& name) {
  static const std::map<std::string, cudnnDataType_t> kTypes = {
      {"f64", CUDNN_DATA_DOUBLE},    {"f32", CUDNN_DATA_FLOAT},    {"f16", CUDNN_DATA_HALF},
      {"bf16", CUDNN_DATA_BFLOAT16}, {"i8", CUDNN_DATA_INT8},      {"i32", CUDNN_DATA_INT32},
      {"e4m3", CUDNN_DATA_FP8_E4M3}, {"e5m2", CUDNN_DATA_FP8_E5M2}};
  const auto found = kTypes.find(name);
  return found == kTypes.end() ? std::nullopt : std::optional(found->second);
}

std::int64_t BytesOf(cudnnDataType_t type) {
  switch (type) {
    case CUDNN_DATA_DOUBLE:
      return 8;
    case CUDNN_DATA_FLOAT:
    case CUDNN_DATA_INT32:
      return 4;
    case CUDNN_DATA_HALF:
    case CUDNN_DATA_BFLOAT16:
      return 2;
    default:
      return 1;
  }
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

}  // namespace

std::int64_t Tensor::bytes() const {
  std::int64_t last = 0;
  for (std::size_t i = 0; i < dims.size(); ++i) last += (dims[i] - 1) * strides[i];
  return (last + 1) * BytesOf(type);
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
  // Where nothing else is said.
  if (*input == CUDNN_DATA_INT8 && c.epilogue.empty()) written.type = CUDNN_DATA_INT32;
  if (values.count("out") > 0) written.type = TypeOf(values["out"]).value();
  c.compute = TypeOf(values["acc"]).value();
  if (!c.epilogue.empty()) c.intermediate = TypeOf(values["mid"]).value();
  if (values["mode"] == "conv") c.mode = CUDNN_CONVOLUTION;
  if (values.count("align") > 0) c.alignment = std::stoll(values["align"]);
  return c;
}

}  // namespace example

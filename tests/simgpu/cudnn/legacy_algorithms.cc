#include "tests/simgpu/cudnn/legacy_algorithms.h"

#include <algorithm>

namespace convtune::simgpu {
namespace {

// The algorithms of the three operations by what they do.
enum class Kind {
  kImplicit,
  kPrecomputed,
  kGemm,
  kAtomics,
  kAtomicsPrecomputed,
  kFft,
  kFftTiling,
  kWinograd,
  kNonfused,
  kNone
};

std::vector<Kind> KindsOf(Operation operation) {
  switch (operation) {
    case Operation::kFwd:
      return {Kind::kImplicit, Kind::kPrecomputed, Kind::kGemm,     Kind::kNone,
              Kind::kFft,      Kind::kFftTiling,   Kind::kWinograd, Kind::kNonfused};
    case Operation::kBwdData:
      return {Kind::kAtomics,   Kind::kPrecomputed, Kind::kFft,
              Kind::kFftTiling, Kind::kWinograd,    Kind::kNonfused};
    case Operation::kBwdFilter:
      return {Kind::kAtomics, Kind::kPrecomputed, Kind::kFft,      Kind::kAtomicsPrecomputed,
              Kind::kNone,    Kind::kNonfused,    Kind::kFftTiling};
  }
  return {};
}

bool ChannelsLast(const Tensor& tensor) {
  return tensor.strides[1] == 1 && tensor.dims[1] > 1 && tensor.strides[4] > 1;
}

bool AllOnes(const std::array<int64_t, 3>& values) {
  return std::all_of(values.begin(), values.end(), [](int64_t value) { return value == 1; });
}

// The manual's INT8_CONFIG and INT8_EXT_CONFIG, whose channels come in fours.
bool SupportsInt8(const Convolution& conv, Kind kind) {
  const bool types = conv.w.type == DataType::kI8 && conv.compute == DataType::kI32 &&
                     (conv.y.type == DataType::kI8 || conv.y.type == DataType::kF32);
  return types && conv.operation == Operation::kFwd && kind == Kind::kPrecomputed &&
         ChannelsLast(conv.x) && ChannelsLast(conv.y) && conv.groups == 1 &&
         AllOnes(conv.dilation) && conv.x.dims[1] % 4 == 0 && conv.w.dims[0] % 4 == 0;
}

// All tensors have one type, and sums that of the manual's DOUBLE, FLOAT, PSEUDO_BFLOAT16,
// PSEUDO_HALF or TRUE_HALF_CONFIG.
bool TypesFit(const Convolution& conv) {
  const DataType type = conv.x.type;
  if (conv.w.type != type || conv.y.type != type) return false;
  switch (type) {
    case DataType::kF64:
      return conv.compute == DataType::kF64;
    case DataType::kF16:
      return conv.compute == DataType::kF16 || conv.compute == DataType::kF32;
    default:
      return conv.compute == DataType::kF32 && (type == DataType::kF32 || type == DataType::kBF16);
  }
}

bool Supports(const Convolution& conv, Kind kind) {
  if (kind == Kind::kNone) return false;
  const DataType type = conv.x.type;
  if (type == DataType::kI8) return SupportsInt8(conv, kind);
  if (!TypesFit(conv)) return false;
  const int64_t height = conv.w.dims[3];
  const int64_t width = conv.w.dims[4];
  // TRUE_HALF_CONFIG.
  if (conv.compute == DataType::kF16 && kind != Kind::kPrecomputed &&
      (kind != Kind::kNonfused || height != 3)) {
    return false;
  }
  const bool plain =
      kind == Kind::kImplicit || kind == Kind::kPrecomputed || kind == Kind::kAtomics;
  // A filter with its channels last wants both tensors so.
  if (ChannelsLast(conv.w)) return plain && ChannelsLast(conv.x) && ChannelsLast(conv.y);
  if (plain || kind == Kind::kAtomicsPrecomputed) return true;
  // The others: 2-D, NCHW, one group, without dilation, as 32-bit and half floats.
  if (type == DataType::kF64 || type == DataType::kBF16 || ChannelsLast(conv.x) ||
      ChannelsLast(conv.y) || conv.groups != 1 || conv.x.dims[2] != 1 || conv.w.dims[2] != 1 ||
      !AllOnes(conv.dilation)) {
    return false;
  }
  if (kind == Kind::kGemm) return type == DataType::kF32;
  if (!AllOnes(conv.stride)) return false;
  switch (kind) {
    case Kind::kFft:
      return std::max(conv.x.dims[3] + 2 * conv.pad[1], conv.x.dims[4] + 2 * conv.pad[2]) <= 256 &&
             height > conv.pad[1] && width > conv.pad[2];
    case Kind::kFftTiling:
      return height <= 32 && width <= 32 && height > conv.pad[1] && width > conv.pad[2];
    case Kind::kWinograd:
      return height == 3 && width == 3;
    default:
      return height == width && (height == 3 || height == 5);
  }
}

int64_t WorkspaceOf(const Convolution& conv, Kind kind) {
  const int64_t n = conv.x.dims[0];
  const int64_t c = conv.x.dims[1];
  const int64_t k = conv.w.dims[0];
  const int64_t transformed = n * c + k * c + n * k;
  switch (kind) {
    case Kind::kPrecomputed:
    case Kind::kAtomicsPrecomputed:
      return 4 * (conv.w.Count() / k + conv.y.Count() / (n * k));
    case Kind::kGemm:
      return 4 * conv.w.Count() / k * (conv.y.Count() / k);
    case Kind::kFft:
      return transformed * 8 * (conv.x.dims[3] + 2 * conv.pad[1]) *
             ((conv.x.dims[4] + 2 * conv.pad[2]) / 2 + 1);
    case Kind::kFftTiling:
      return transformed * 8 * 32 * 17;
    case Kind::kWinograd:
      return k * c * 16 * 4;
    case Kind::kNonfused: {
      const int64_t tiles = n * ((conv.y.dims[3] + 3) / 4) * ((conv.y.dims[4] + 3) / 4);
      return 36 * 4 * (tiles * (c + k) + c * k);
    }
    default:
      return 0;
  }
}

}  // namespace

cudnnStatus_t WorkspaceOf(const Convolution& convolution, int algorithm, int64_t* bytes) {
  const std::vector<Kind> kinds = KindsOf(convolution.operation);
  if (algorithm < 0 || algorithm >= static_cast<int>(kinds.size())) return CUDNN_STATUS_BAD_PARAM;
  const Kind kind = kinds[static_cast<size_t>(algorithm)];
  if (!Supports(convolution, kind)) return CUDNN_STATUS_NOT_SUPPORTED;
  *bytes = WorkspaceOf(convolution, kind);
  return CUDNN_STATUS_SUCCESS;
}

std::vector<LegacyEntry> EntriesOf(const Convolution& convolution, cudnnMathType_t math_type) {
  std::vector<LegacyEntry> entries;
  const std::vector<Kind> kinds = KindsOf(convolution.operation);
  for (int algorithm = 0; algorithm < static_cast<int>(kinds.size()); ++algorithm) {
    const Kind kind = kinds[static_cast<size_t>(algorithm)];
    LegacyEntry entry;
    entry.algorithm = algorithm;
    entry.status = WorkspaceOf(convolution, algorithm, &entry.workspace_bytes);
    const bool tensor_cores = convolution.x.type != DataType::kF64 &&
                              (kind == Kind::kPrecomputed || kind == Kind::kNonfused);
    if (tensor_cores && math_type != CUDNN_DEFAULT_MATH) {
      entry.math_type = math_type;
      entries.push_back(entry);
    }
    entry.math_type = CUDNN_DEFAULT_MATH;
    entries.push_back(entry);
  }
  return entries;
}

bool IsDeterministic(Operation operation, int algorithm) {
  const Kind kind = KindsOf(operation)[static_cast<size_t>(algorithm)];
  return kind != Kind::kAtomics && kind != Kind::kAtomicsPrecomputed;
}

}  // namespace convtune::simgpu

// MakeKey makes the key of the problem that a graph's operations are.
#include <string.h>

#include <algorithm>

#include "client/preload/shadow.h"

namespace convtune::preload {
namespace {

using snapshot::ProblemKey;

constexpr uint8_t kAdd = 1;
constexpr uint8_t kBias = 2;
constexpr uint8_t kRelu = 3;

// The model's number of a data type; 0 if it has none.
uint8_t ModelType(int cudnn_type) {
  constexpr int kTypes[] = {CUDNN_DATA_DOUBLE,   CUDNN_DATA_FLOAT,   CUDNN_DATA_HALF,
                            CUDNN_DATA_BFLOAT16, CUDNN_DATA_INT8,    CUDNN_DATA_INT32,
                            CUDNN_DATA_FP8_E4M3, CUDNN_DATA_FP8_E5M2};
  uint8_t number = 0;
  for (const int type : kTypes) {
    ++number;
    if (type == cudnn_type) {
      return number;
    }
  }
  return 0;
}

bool SameDims(const TensorShadow& tensor, const int64_t* dims, int rank) {
  return tensor.rank == rank &&
         memcmp(tensor.dims, dims, static_cast<size_t>(rank) * sizeof(int64_t)) == 0;
}

// Strides of size-1 dimensions address nothing.
bool SameStrides(const TensorShadow& a, const TensorShadow& b) {
  for (int i = 0; i < a.rank; ++i) {
    if (a.dims[i] > 1 && a.strides[i] != b.strides[i]) {
      return false;
    }
  }
  return true;
}

bool IsChannels(const TensorShadow& tensor, int64_t channels, int rank) {
  int64_t dims[snapshot::kMaxRank] = {1, channels, 1, 1, 1};
  return SameDims(tensor, dims, rank);
}

// Lowers the alignment to that of a tensor in memory; to 0 where that cannot be one.
void Align(const TensorShadow& tensor, uint16_t* alignment) {
  const int64_t bytes = tensor.alignment;
  const bool good = bytes > 0 && (bytes & (bytes - 1)) == 0;
  if (!tensor.is_virtual) {
    *alignment = good ? static_cast<uint16_t>(std::min<int64_t>(bytes, *alignment)) : 0;
  }
}

// Reads the operations behind the convolution into the key. False unless each takes what the one
// before it wrote, and all are an epilogue that a key can say.
bool ReadEpilogue(const OperationShadow* const* operations, int count, ProblemKey* key) {
  const OperationShadow& conv = *operations[0];
  const int rank = conv.x.rank;
  const TensorShadow* value = &conv.y;
  const TensorShadow& result = operations[count - 1]->y;
  int adds = 0;
  for (int i = 1; i < count; ++i) {
    const OperationShadow& op = *operations[i];
    adds += op.convolution == 0 && op.pointwise.mode == CUDNN_POINTWISE_ADD ? 1 : 0;
  }
  for (int i = 1; i < count; ++i) {
    const OperationShadow& op = *operations[i];
    if (op.convolution != 0 || op.pointwise.math != CUDNN_DATA_FLOAT || !value->is_virtual ||
        ModelType(value->type) != key->intermediate_type || op.x.uid != value->uid ||
        !SameDims(op.y, conv.y.dims, rank)) {
      return false;
    }
    uint8_t kind = 0;
    if (op.pointwise.mode == CUDNN_POINTWISE_RELU_FWD) {
      kind = kRelu;
    } else if (op.pointwise.mode == CUDNN_POINTWISE_ADD && !op.b.is_virtual &&
               op.b.type == result.type) {
      // Of two additions the first is the residual's.
      kind = adds == 2 && i == 1 ? kAdd : kBias;
      const bool fits = kind == kAdd
                            ? SameDims(op.b, result.dims, rank) && SameStrides(op.b, result)
                            : IsChannels(op.b, conv.w.dims[0], rank);
      if (!fits) {
        return false;
      }
      Align(op.b, &key->alignment);
    } else {
      return false;
    }
    key->epilogue[key->epilogue_count++] = kind;
    value = &op.y;
  }
  constexpr uint8_t kForms[3][3] = {{kBias}, {kBias, kRelu}, {kAdd, kBias, kRelu}};
  return key->epilogue_count >= 1 && key->epilogue_count <= 3 &&
         memcmp(key->epilogue, kForms[key->epilogue_count - 1], 3) == 0;
}

}  // namespace

bool MakeKey(const OperationShadow* const* operations, int count, ProblemKey* key) {
  *key = {};
  const OperationShadow& conv = *operations[0];
  const OperationShadow& last = *operations[count - 1];
  const int spatial = conv.conv.spatial;
  const int rank = conv.x.rank;
  if (conv.convolution == 0 || spatial < 2 || spatial > snapshot::kMaxSpatial ||
      rank != spatial + 2 || conv.w.rank != rank || conv.y.rank != rank || conv.w.dims[1] < 1 ||
      conv.x.is_virtual || conv.w.is_virtual || last.y.is_virtual) {
    return false;
  }
  key->operation = conv.convolution;
  key->spatial_rank = static_cast<uint8_t>(spatial);
  key->mode = conv.conv.mode == CUDNN_CONVOLUTION ? 2 : 1;
  key->compute_type = ModelType(conv.conv.compute);
  std::copy_n(conv.x.dims, rank, key->x_dims);
  std::copy_n(conv.w.dims, rank, key->w_dims);
  std::copy_n(conv.x.strides, rank, key->x_strides);
  std::copy_n(conv.w.strides, rank, key->w_strides);
  std::copy_n(last.y.strides, rank, key->y_strides);
  std::copy_n(conv.conv.pad_low, spatial, key->pad_low);
  std::copy_n(conv.conv.pad_high, spatial, key->pad_high);
  std::copy_n(conv.conv.strides, spatial, key->strides);
  std::copy_n(conv.conv.dilations, spatial, key->dilations);
  key->groups = conv.x.dims[1] / conv.w.dims[1];

  const TensorShadow* inputs[3][2] = {{&conv.x, &conv.w}, {&conv.w, &conv.y}, {&conv.x, &conv.y}};
  const TensorShadow* outputs[3] = {&last.y, &conv.x, &conv.w};
  const int kind = conv.convolution - 1;
  if (inputs[kind][0]->type != inputs[kind][1]->type) {
    return false;
  }
  key->data_type = ModelType(inputs[kind][0]->type);
  key->output_type = ModelType(outputs[kind]->type);

  key->alignment = 256;
  Align(conv.x, &key->alignment);
  Align(conv.w, &key->alignment);
  Align(last.y, &key->alignment);
  if (count > 1) {
    key->intermediate_type = ModelType(conv.y.type);
    if (conv.convolution != 1 || key->intermediate_type == 0 ||
        !ReadEpilogue(operations, count, key)) {
      return false;
    }
  }
  int64_t y_dims[snapshot::kMaxRank] = {};
  return key->data_type != 0 && key->output_type != 0 && key->compute_type != 0 &&
         key->alignment != 0 && snapshot::OutputDims(*key, y_dims) &&
         SameDims(conv.y, y_dims, rank) && SameDims(last.y, y_dims, rank) &&
         snapshot::Canonicalize(key);
}

}  // namespace convtune::preload

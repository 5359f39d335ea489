// What each attribute means for its descriptor's shadow. One that is not known
// here makes the descriptor odd, and what is made of it passes through.
#include <string.h>

#include "client/preload/device.h"
#include "client/preload/shadow.h"

namespace convtune::preload {
namespace {

// The arguments of a SetAttribute call.
struct Attribute {
  cudnnBackendAttributeName_t name;
  cudnnBackendAttributeType_t type;
  int64_t count;
  const void* values;

  // Copies the one value; false if it is none of that type.
  template <typename T>
  bool One(cudnnBackendAttributeType_t wanted, T* to) const {
    if (type != wanted || count != 1 || values == nullptr) {
      return false;
    }
    memcpy(to, values, sizeof(T));
    return true;
  }
  bool List(int64_t most, int64_t* to) const {
    if (type != CUDNN_TYPE_INT64 || count < 1 || count > most || values == nullptr) {
      return false;
    }
    memcpy(to, values, static_cast<size_t>(count) * sizeof(int64_t));
    return true;
  }
  // A number of either width that is `wanted`.
  bool IsNumber(double wanted) const {
    float narrow = 0;
    double wide = 0;
    return (One(CUDNN_TYPE_FLOAT, &narrow) && static_cast<double>(narrow) == wanted) ||
           (One(CUDNN_TYPE_DOUBLE, &wide) && wide == wanted);
  }
  Record* Descriptor(cudnnBackendDescriptorType_t wanted) const {
    cudnnBackendDescriptor_t descriptor = nullptr;
    Record* record =
        One(CUDNN_TYPE_BACKEND_DESCRIPTOR, &descriptor) ? FindRecord(descriptor) : nullptr;
    return record != nullptr && record->type == wanted ? record : nullptr;
  }
};

bool ReadEnum(const Attribute& a, cudnnBackendAttributeType_t type, int* to) {
  static_assert(sizeof(cudnnDataType_t) == sizeof(int));
  return a.One(type, to);
}

bool Note(const Attribute& a, TensorShadow* t) {
  int64_t number = 0;
  bool flag = false;
  switch (a.name) {
    case CUDNN_ATTR_TENSOR_UNIQUE_ID:
      return a.One(CUDNN_TYPE_INT64, &t->uid);
    case CUDNN_ATTR_TENSOR_DATA_TYPE:
      return ReadEnum(a, CUDNN_TYPE_DATA_TYPE, &t->type);
    case CUDNN_ATTR_TENSOR_DIMENSIONS:
      t->rank = static_cast<int>(a.count);
      return a.List(snapshot::kMaxRank, t->dims);
    case CUDNN_ATTR_TENSOR_STRIDES:
      return a.List(snapshot::kMaxRank, t->strides);
    case CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT:
      return a.One(CUDNN_TYPE_INT64, &t->alignment);
    case CUDNN_ATTR_TENSOR_IS_VIRTUAL:
      return a.One(CUDNN_TYPE_BOOLEAN, &t->is_virtual);
    case CUDNN_ATTR_TENSOR_IS_BY_VALUE:
      return a.One(CUDNN_TYPE_BOOLEAN, &flag) && !flag;
    case CUDNN_ATTR_TENSOR_VECTOR_COUNT:
      return a.One(CUDNN_TYPE_INT64, &number) && number == 1;
    case CUDNN_ATTR_TENSOR_VECTORIZED_DIMENSION:
      return true;  // without a vector count above 1 it says nothing
    case CUDNN_ATTR_TENSOR_REORDERING_MODE: {
      int mode = 0;
      return ReadEnum(a, CUDNN_TYPE_TENSOR_REORDERING_MODE, &mode) &&
             mode == CUDNN_TENSOR_REORDERING_NONE;
    }
    default:
      return false;
  }
}

bool Note(const Attribute& a, ConvolutionShadow* c) {
  int64_t spatial = 0;
  switch (a.name) {
    case CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS:
      if (!a.One(CUDNN_TYPE_INT64, &spatial)) {
        return false;
      }
      c->spatial = static_cast<int>(spatial);
      return true;
    case CUDNN_ATTR_CONVOLUTION_COMP_TYPE:
      return ReadEnum(a, CUDNN_TYPE_DATA_TYPE, &c->compute);
    case CUDNN_ATTR_CONVOLUTION_CONV_MODE:
      return ReadEnum(a, CUDNN_TYPE_CONVOLUTION_MODE, &c->mode);
    case CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS:
      return a.List(snapshot::kMaxSpatial, c->pad_low);
    case CUDNN_ATTR_CONVOLUTION_POST_PADDINGS:
      return a.List(snapshot::kMaxSpatial, c->pad_high);
    case CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES:
      return a.List(snapshot::kMaxSpatial, c->strides);
    case CUDNN_ATTR_CONVOLUTION_DILATIONS:
      return a.List(snapshot::kMaxSpatial, c->dilations);
    default:
      return false;
  }
}

bool Note(const Attribute& a, PointwiseShadow* p) {
  float narrow = 0;
  double wide = 0;
  switch (a.name) {
    case CUDNN_ATTR_POINTWISE_MODE:
      return ReadEnum(a, CUDNN_TYPE_POINTWISE_MODE, &p->mode);
    case CUDNN_ATTR_POINTWISE_MATH_PREC:
      return ReadEnum(a, CUDNN_TYPE_DATA_TYPE, &p->math);
    case CUDNN_ATTR_POINTWISE_NAN_PROPAGATION:
      return true;
    case CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP:
    case CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP_SLOPE:
      return a.IsNumber(0);
    case CUDNN_ATTR_POINTWISE_RELU_UPPER_CLIP:
      // No clip: whatever no f32 value is above.
      return (a.One(CUDNN_TYPE_FLOAT, &narrow) && narrow >= 3.4e38F) ||
             (a.One(CUDNN_TYPE_DOUBLE, &wide) && wide >= 3.4e38);
    default:
      return false;
  }
}

// Copies the shadow of the descriptor that the attribute names.
template <typename T>
bool CopyShadow(const Attribute& a, cudnnBackendDescriptorType_t type, T Record::*shadow, T* to) {
  const Record* record = a.Descriptor(type);
  if (record == nullptr) {
    return false;
  }
  *to = record->*shadow;
  return !record->odd;
}

bool CopyTensor(const Attribute& a, TensorShadow* to) {
  return CopyShadow(a, CUDNN_BACKEND_TENSOR_DESCRIPTOR, &Record::tensor, to);
}

bool Note(const Attribute& a, OperationShadow* o) {
  switch (a.name) {
    case CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC:
    case CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC:
    case CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC:
      return CopyShadow(a, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, &Record::conv, &o->conv);
    case CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X:
    case CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX:
    case CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X:
    case CUDNN_ATTR_OPERATION_POINTWISE_XDESC:
      return CopyTensor(a, &o->x);
    case CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W:
    case CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W:
    case CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW:
      return CopyTensor(a, &o->w);
    case CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y:
    case CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY:
    case CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY:
    case CUDNN_ATTR_OPERATION_POINTWISE_YDESC:
      return CopyTensor(a, &o->y);
    case CUDNN_ATTR_OPERATION_POINTWISE_BDESC:
      return CopyTensor(a, &o->b);
    case CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA:
    case CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA:
    case CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA:
    case CUDNN_ATTR_OPERATION_POINTWISE_ALPHA1:
      return a.IsNumber(1);
    case CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA:
    case CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA:
    case CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA:
      return a.IsNumber(0);
    case CUDNN_ATTR_OPERATION_POINTWISE_ALPHA2:
      // A factor at run time, which no engine's choice hangs on: PyTorch adds
      // the output itself times 0 where it has nothing to add.
      return true;
    case CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR:
      return CopyShadow(a, CUDNN_BACKEND_POINTWISE_DESCRIPTOR, &Record::pointwise, &o->pointwise);
    default:
      return false;
  }
}

// A graph that a key can say has at most five operations: the convolution and its epilogue.
void NoteOperations(const Attribute& a, GraphShadow* graph) {
  constexpr int64_t kMost = snapshot::kMaxEpilogue + 1;
  graph->known = false;
  if (a.type != CUDNN_TYPE_BACKEND_DESCRIPTOR || a.count < 1 || a.count > kMost ||
      a.values == nullptr) {
    return;
  }
  const OperationShadow* operations[kMost] = {};
  const auto* descriptors = static_cast<const cudnnBackendDescriptor_t*>(a.values);
  for (int64_t i = 0; i < a.count; ++i) {
    const Record* record = FindRecord(descriptors[i]);
    const bool is_operation =
        record != nullptr &&
        ((record->type >= CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR &&
          record->type <= CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR) ||
         record->type == CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    if (!is_operation || record->odd) {
      return;
    }
    operations[i] = &record->operation;
  }
  graph->known = MakeKey(operations, static_cast<int>(a.count), &graph->key);
}

bool Note(const Attribute& a, GraphShadow* graph) {
  bool flag = false;
  switch (a.name) {
    case CUDNN_ATTR_OPERATIONGRAPH_OPS:
      NoteOperations(a, graph);
      return true;
    case CUDNN_ATTR_OPERATIONGRAPH_HANDLE:
      graph->handle = nullptr;
      a.One(CUDNN_TYPE_HANDLE, &graph->handle);
      return true;
    default:  // dynamic shapes, or something new
      return a.One(CUDNN_TYPE_BOOLEAN, &flag) && !flag;
  }
}

bool Note(const Attribute& a, DeviceShadow* device) {
  int32_t ordinal = 0;
  device->known = false;
  if (a.name == CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION && a.type == CUDNN_TYPE_CHAR &&
      a.count > 0 && a.values != nullptr) {
    device->known = EnvironmentOfProperties(
        {static_cast<const char*>(a.values), static_cast<size_t>(a.count)}, &device->environment);
  } else if (a.name == CUDNN_ATTR_DEVICEPROP_HANDLE) {
    device->known = CurrentEnvironment(&device->environment);
  } else if (a.name == CUDNN_ATTR_DEVICEPROP_DEVICE_ID && a.One(CUDNN_TYPE_INT32, &ordinal)) {
    device->known = EnvironmentOfDevice(ordinal, &device->environment);
  }
  return true;
}

bool Note(const Attribute& a, HeuristicsShadow* h) {
  switch (a.name) {
    case CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH: {
      const Record* graph = a.Descriptor(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
      if (graph != nullptr) {
        h->graph = graph->graph;
        h->graph.known = graph->graph.known && !graph->odd;
        h->graph.graph = graph->descriptor;
      }
      return graph != nullptr;
    }
    case CUDNN_ATTR_ENGINEHEUR_MODE:
      return ReadEnum(a, CUDNN_TYPE_HEUR_MODE, &h->mode);
    case CUDNN_ATTR_ENGINEHEUR_SM_COUNT_TARGET:
      return a.One(CUDNN_TYPE_INT32, &h->sm_count_target);
    case CUDNN_ATTR_ENGINEHEUR_DEVICEPROP: {
      const Record* device = a.Descriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
      h->has_device = true;
      h->device = device == nullptr ? DeviceShadow{} : device->device;
      h->device_descriptor = device == nullptr ? nullptr : device->descriptor;
      return true;
    }
    default:
      return false;
  }
}

// Also of an engine config, whose problem is known from the query that gave it.
bool Note(const Attribute& a, PlanShadow* plan) {
  if (a.name == CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG) {
    const Record* config = a.Descriptor(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    plan->problem = config == nullptr ? nullptr : config->plan.problem;
    plan->served = config != nullptr && config->plan.served;
  }
  return true;
}

}  // namespace

void NoteAttribute(Record* record, cudnnBackendAttributeName_t name,
                   cudnnBackendAttributeType_t type, int64_t count, const void* values) {
  const Attribute a = {name, type, count, values};
  const auto note = [&](auto shadow) { return Note(a, &(record->*shadow)); };
  record->odd = !WithShadowOf(record->type, note) || record->odd;
}

}  // namespace convtune::preload

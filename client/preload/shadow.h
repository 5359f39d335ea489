// A Shadow records what a program set in a backend descriptor. cuDNN cannot be asked: an
// operation graph's operations cannot be read back.
//
// Records hold copies, never pointers to each other: cuDNN takes finalised
// descriptors only, so what is copied when one descriptor is set in another
// does not change any more.
#pragma once

#include <cudnn.h>
#include <stdint.h>

#include <atomic>

#include "client/preload/once.h"
#include "db/snapshot/datagram.h"
#include "db/snapshot/keys.h"

namespace convtune::preload {

struct Problem;  // problems.h
struct Served;   // engine_config.h

struct TensorShadow {
  bool is_virtual;
  int rank;
  int type;  // cudnnDataType_t
  int64_t uid;
  int64_t alignment;
  int64_t dims[snapshot::kMaxRank];
  int64_t strides[snapshot::kMaxRank];
};

struct ConvolutionShadow {
  int spatial;
  int compute;  // cudnnDataType_t
  int mode;     // cudnnConvolutionMode_t
  int64_t pad_low[snapshot::kMaxSpatial];
  int64_t pad_high[snapshot::kMaxSpatial];
  int64_t strides[snapshot::kMaxSpatial];
  int64_t dilations[snapshot::kMaxSpatial];
};

struct PointwiseShadow {
  int mode;  // cudnnPointwiseMode_t
  int math;  // cudnnDataType_t
};

struct OperationShadow {
  uint8_t convolution;  // 1 fwd, 2 bwd_data, 3 bwd_filter; 0: pointwise
  ConvolutionShadow conv;
  PointwiseShadow pointwise;
  TensorShadow x, w, y, b;  // a pointwise operation has x and y, an addition b too
};

// The key of a graph's convolution. Copied into the descriptors that are made from the
// graph.
struct GraphShadow {
  bool known;  // a convolution that the key can say
  cudnnBackendDescriptor_t graph;
  void* handle;  // cudnnHandle_t; null: none was set
  snapshot::ProblemKey key;
};

struct DeviceShadow {
  bool known;
  snapshot::EnvironmentKey environment;
};

struct HeuristicsShadow {
  cudnnBackendDescriptor_t descriptor;  // the query's own, once it is finalised
  int mode;
  int32_t sm_count_target;
  GraphShadow graph;
  bool has_device;
  cudnnBackendDescriptor_t device_descriptor;
  DeviceShadow device;
  Problem* problem;
  Served* served;  // owned
};

struct PlanShadow {
  Problem* problem;                  // also of an engine config; null: not from a known query
  bool served;                       // the config is one of ours
  std::atomic<uint64_t> executions;  // without those that went into a CUDA graph
  Once<snapshot::ObservedPlanDatagram> facts;  // the datagram that will tell of the plan; owned
};

// Allocated as large as its type needs.
struct Record {
  cudnnBackendDescriptor_t descriptor;
  Record* next;
  cudnnBackendDescriptorType_t type;
  bool odd;  // an attribute was set that has no place in the shadow
  union {
    TensorShadow tensor;
    ConvolutionShadow conv;
    PointwiseShadow pointwise;
    OperationShadow operation;
    GraphShadow graph;
    DeviceShadow device;
    HeuristicsShadow heuristics;
    PlanShadow plan;  // and engine configs
  };
};

// Calls `with` with a pointer to the member of Record that descriptors of the type have. Returns
// what it returns; 0 for a type that is not shadowed.
template <typename With>
auto WithShadowOf(cudnnBackendDescriptorType_t type, const With& with) {
  switch (type) {
    case CUDNN_BACKEND_TENSOR_DESCRIPTOR:
      return with(&Record::tensor);
    case CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR:
      return with(&Record::conv);
    case CUDNN_BACKEND_POINTWISE_DESCRIPTOR:
      return with(&Record::pointwise);
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
      return with(&Record::operation);
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR:
      return with(&Record::graph);
    case CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR:
      return with(&Record::device);
    case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR:
      return with(&Record::heuristics);
    case CUDNN_BACKEND_ENGINECFG_DESCRIPTOR:
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR:
      return with(&Record::plan);
    default:
      return decltype(with(&Record::tensor))();
  }
}

// A fresh record for a descriptor that was just created; nothing happens for a
// type that is not shadowed. Thread-safe, like FindRecord and Forget.
void Remember(cudnnBackendDescriptor_t descriptor, cudnnBackendDescriptorType_t type);
// Null if the descriptor is not shadowed. The record is valid until its descriptor is
// forgotten, and to be used by one thread at a time, as the descriptor is.
Record* FindRecord(cudnnBackendDescriptor_t descriptor);
void Forget(cudnnBackendDescriptor_t descriptor);

// Notes a SetAttribute call that cuDNN accepted.
void NoteAttribute(Record* record, cudnnBackendAttributeName_t name,
                   cudnnBackendAttributeType_t type, int64_t count, const void* values);

// The key of a graph of one convolution and, behind a forward one, bias,
// bias+relu or add+bias+relu, as PyTorch and ONNX Runtime build them. False for
// anything else.
bool MakeKey(const OperationShadow* const* operations, int count, snapshot::ProblemKey* key);

// Opens the locks that other threads held when the process forked. For the child.
void OpenShadowLocks();

}  // namespace convtune::preload

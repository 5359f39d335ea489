// The backend functions that are put in front of cuDNN's own.
#include <cudnn.h>

#include "client/preload/problems.h"
#include "client/preload/real_cudnn.h"
#include "client/preload/serve.h"
#include "client/preload/shadow.h"
#include "client/preload/state.h"

#define CONVTUNE_HOOK extern "C" __attribute__((visibility("default")))

namespace convtune::preload {
namespace {

// Who calls a hook, and the functions that the hook goes on to.
struct Caller {
  explicit Caller(const void* return_address)
      : is_cudnn(IsCudnn(return_address)), real(is_cudnn ? real_graph : real_cudnn) {}
  // True if the program calls, and the interposer is not switched off.
  bool IsOurs() const { return !is_cudnn && GetState().active; }

  const bool is_cudnn;
  const RealCudnn& real;
};

}  // namespace
}  // namespace convtune::preload

using namespace convtune::preload;  // NOLINT(google-build-using-namespace)

CONVTUNE_HOOK cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                                         cudnnBackendDescriptor_t* descriptor) {
  const Caller caller(__builtin_return_address(0));
  const cudnnStatus_t status = caller.real.Create(type, descriptor);
  if (status == CUDNN_STATUS_SUCCESS && caller.IsOurs()) {
    Remember(*descriptor, type);
  }
  return status;
}

CONVTUNE_HOOK cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  const Caller caller(__builtin_return_address(0));
  // Before: afterwards another thread may get the same address.
  if (descriptor != nullptr && caller.IsOurs()) {
    Forget(descriptor);
  }
  return caller.real.Destroy(descriptor);
}

CONVTUNE_HOOK cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor,
                                                     cudnnBackendAttributeName_t name,
                                                     cudnnBackendAttributeType_t type,
                                                     int64_t count, const void* values) {
  const Caller caller(__builtin_return_address(0));
  const cudnnStatus_t status = caller.real.SetAttribute(descriptor, name, type, count, values);
  if (status == CUDNN_STATUS_SUCCESS && caller.IsOurs()) {
    Record* record = FindRecord(descriptor);
    if (record != nullptr) {
      NoteAttribute(record, name, type, count, values);
    }
  }
  return status;
}

CONVTUNE_HOOK cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
  const Caller caller(__builtin_return_address(0));
  const cudnnStatus_t status = caller.real.Finalize(descriptor);
  if (status != CUDNN_STATUS_SUCCESS || !caller.IsOurs()) {
    return status;
  }
  Record* record = FindRecord(descriptor);
  if (record == nullptr) {
    return status;
  }
  if (record->type == CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR) {
    OnHeuristics(record);
  } else if (record->type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) {
    OnPlanFinalized(&record->plan);
  }
  return status;
}

CONVTUNE_HOOK cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t const descriptor,
                                                     cudnnBackendAttributeName_t name,
                                                     cudnnBackendAttributeType_t type,
                                                     int64_t requested, int64_t* count,
                                                     void* values) {
  const Caller caller(__builtin_return_address(0));
  if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS && type == CUDNN_TYPE_BACKEND_DESCRIPTOR &&
      caller.IsOurs()) {
    const Record* record = FindRecord(descriptor);
    if (record != nullptr && record->type == CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR) {
      return GiveResults(*record, requested, count, static_cast<cudnnBackendDescriptor_t*>(values));
    }
  }
  return caller.real.GetAttribute(descriptor, name, type, requested, count, values);
}

CONVTUNE_HOOK cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                                cudnnBackendDescriptor_t variant_pack) {
  const Caller caller(__builtin_return_address(0));
  const cudnnStatus_t status = caller.real.Execute(handle, plan, variant_pack);
  if (status == CUDNN_STATUS_SUCCESS && caller.IsOurs()) {
    Record* record = FindRecord(plan);
    if (record != nullptr && record->type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) {
      OnExecute(handle, plan, &record->plan);
    }
  }
  return status;
}

// The backend functions that are put in front of cuDNN's own.
#include <cudnn.h>

#include "client/preload/process/real_cudnn.h"
#include "client/preload/report/observe.h"
#include "client/preload/serve/serve.h"
#include "client/preload/shadow/shadow.h"
#include "client/preload/state/state.h"

#define CONVTUNE_HOOK extern "C" __attribute__((visibility("default")))

namespace convtune::preload {
namespace {

// Who calls, and what is behind the hook for him.
struct Caller {
  explicit Caller(const void* return_address)
      : is_cudnn(process::IsCudnn(return_address)),
        real(is_cudnn ? process::RealGraph() : process::Real()) {}
  // True if the call is the program's, and ours to look at.
  bool IsOurs() const { return !is_cudnn && state::GetState().active; }

  const bool is_cudnn;
  const process::RealCudnn& real;
};

}  // namespace
}  // namespace convtune::preload

using namespace convtune::preload;  // NOLINT(google-build-using-namespace)

CONVTUNE_HOOK cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                                         cudnnBackendDescriptor_t* descriptor) {
  const Caller caller(__builtin_return_address(0));
  const cudnnStatus_t status = caller.real.Create(type, descriptor);
  if (status == CUDNN_STATUS_SUCCESS && caller.IsOurs()) {
    shadow::Remember(*descriptor, type);
  }
  return status;
}

CONVTUNE_HOOK cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  const Caller caller(__builtin_return_address(0));
  // Before: afterwards another thread may get the same address.
  if (descriptor != nullptr && caller.IsOurs()) {
    shadow::Forget(descriptor);
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
    shadow::Record* record = shadow::Find(descriptor);
    if (record != nullptr) {
      shadow::NoteAttribute(record, name, type, count, values);
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
  shadow::Record* record = shadow::Find(descriptor);
  if (record == nullptr) {
    return status;
  }
  if (record->type == CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR) {
    serve::OnHeuristics(descriptor, &record->heuristics);
  } else if (record->type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) {
    report::OnPlanFinalized(&record->plan);
  }
  return status;
}

CONVTUNE_HOOK cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t const descriptor,
                                                     cudnnBackendAttributeName_t name,
                                                     cudnnBackendAttributeType_t type,
                                                     int64_t requested, int64_t* count,
                                                     void* values) {
  const Caller caller(__builtin_return_address(0));
  if (name != CUDNN_ATTR_ENGINEHEUR_RESULTS || type != CUDNN_TYPE_BACKEND_DESCRIPTOR ||
      !caller.IsOurs()) {
    return caller.real.GetAttribute(descriptor, name, type, requested, count, values);
  }
  shadow::Record* record = shadow::Find(descriptor);
  shadow::HeuristicsShadow* query =
      record != nullptr && record->type == CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR ? &record->heuristics
                                                                               : nullptr;
  auto* configs = static_cast<cudnnBackendDescriptor_t*>(values);
  cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
  if (query != nullptr && query->served != nullptr &&
      serve::GiveResults(descriptor, query, requested, count, configs, &status)) {
    return status;
  }
  status = caller.real.GetAttribute(descriptor, name, type, requested, count, values);
  if (query != nullptr && query->problem != nullptr && status == CUDNN_STATUS_SUCCESS) {
    serve::NoteResults(*query, requested, count, configs);
  }
  return status;
}

CONVTUNE_HOOK cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                                cudnnBackendDescriptor_t variant_pack) {
  const Caller caller(__builtin_return_address(0));
  const cudnnStatus_t status = caller.real.Execute(handle, plan, variant_pack);
  if (status == CUDNN_STATUS_SUCCESS && caller.IsOurs()) {
    shadow::Record* record = shadow::Find(plan);
    if (record != nullptr && record->type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) {
      report::OnExecute(handle, plan, &record->plan);
    }
  }
  return status;
}

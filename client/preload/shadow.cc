#include "client/preload/shadow.h"

#include <stdlib.h>

#include "client/preload/mutex.h"
#include "client/preload/serve.h"

namespace convtune::preload {
namespace {

constexpr size_t kBuckets = 8192;
constexpr size_t kLocks = 64;

Record* buckets[kBuckets];
Mutex locks[kLocks];

size_t BucketOf(cudnnBackendDescriptor_t descriptor) {
  const auto address = reinterpret_cast<uintptr_t>(descriptor);
  return static_cast<size_t>((address >> 4) * 0x9E3779B97F4A7C15ULL >> 40) % kBuckets;
}

bool IsShadowed(cudnnBackendDescriptorType_t type) {
  switch (type) {
    case CUDNN_BACKEND_TENSOR_DESCRIPTOR:
    case CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR:
    case CUDNN_BACKEND_POINTWISE_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR:
    case CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR:
    case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR:
    case CUDNN_BACKEND_ENGINECFG_DESCRIPTOR:
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR:
      return true;
    default:
      return false;
  }
}

void Free(Record* record) {
  if (record != nullptr && record->type == CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR) {
    Release(record->heuristics.served);
  }
  free(record);
}

// Takes the record out of its bucket, whose lock is held.
Record* TakeOut(size_t bucket, cudnnBackendDescriptor_t descriptor) {
  for (Record** link = &buckets[bucket]; *link != nullptr; link = &(*link)->next) {
    if ((*link)->descriptor == descriptor) {
      Record* found = *link;
      *link = found->next;
      return found;
    }
  }
  return nullptr;
}

}  // namespace

void Remember(cudnnBackendDescriptor_t descriptor, cudnnBackendDescriptorType_t type) {
  Record* record = nullptr;
  if (IsShadowed(type)) {
    record = static_cast<Record*>(calloc(1, sizeof(Record)));
  }
  const size_t bucket = BucketOf(descriptor);
  Record* stale = nullptr;
  {
    const Locked locked(&locks[bucket % kLocks]);
    // One that was destroyed where we could not see it.
    stale = TakeOut(bucket, descriptor);
    if (record != nullptr) {
      record->descriptor = descriptor;
      record->type = type;
      record->next = buckets[bucket];
      buckets[bucket] = record;
    }
  }
  Free(stale);
}

Record* Find(cudnnBackendDescriptor_t descriptor) {
  const size_t bucket = BucketOf(descriptor);
  const Locked locked(&locks[bucket % kLocks]);
  for (Record* record = buckets[bucket]; record != nullptr; record = record->next) {
    if (record->descriptor == descriptor) {
      return record;
    }
  }
  return nullptr;
}

void Forget(cudnnBackendDescriptor_t descriptor) {
  const size_t bucket = BucketOf(descriptor);
  Record* record = nullptr;
  {
    const Locked locked(&locks[bucket % kLocks]);
    record = TakeOut(bucket, descriptor);
  }
  Free(record);
}

}  // namespace convtune::preload

#include "client/preload/shadow.h"

#include <sched.h>
#include <stddef.h>
#include <stdlib.h>

#include "client/preload/engine_config.h"

namespace convtune::preload {
namespace {

// A lock beside the chain that it guards: one cache line serves both. It is
// held for a few instructions. The chains are whole at every instant (each
// change is one store), so a forked child may just open the locks.
struct Bucket {
  std::atomic<uint32_t> locked{0};
  Record* chain = nullptr;
};
constexpr size_t kBuckets = 4096;
constinit Bucket buckets[kBuckets];

class LockedBucket {
 public:
  explicit LockedBucket(Bucket* bucket) : bucket_(bucket) {
    constexpr int kSpins = 64;
    for (int i = 0; bucket_->locked.exchange(1, std::memory_order_acquire) != 0; ++i) {
      if (i >= kSpins) {
        sched_yield();
      }
    }
  }
  ~LockedBucket() { bucket_->locked.store(0, std::memory_order_release); }
  LockedBucket(const LockedBucket&) = delete;
  LockedBucket& operator=(const LockedBucket&) = delete;

 private:
  Bucket* bucket_;
};

Bucket* BucketOf(cudnnBackendDescriptor_t descriptor) {
  const auto address = reinterpret_cast<uintptr_t>(descriptor);
  return &buckets[static_cast<size_t>((address >> 4) * 0x9E3779B97F4A7C15ULL >> 40) % kBuckets];
}

// OperationShadow::convolution of a type.
uint8_t ConvolutionOf(cudnnBackendDescriptorType_t type) {
  return type == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR           ? 1
         : type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR   ? 2
         : type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR ? 3
                                                                                  : 0;
}

void Free(Record* record) {
  if (record != nullptr && record->type == CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR) {
    Release(record->heuristics.served);
  }
  if (record != nullptr && record->type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) {
    free(record->plan.facts.known());
  }
  free(record);
}

// Gives the link to the descriptor's record in its bucket; the link is null where the bucket has no
// such record. The caller holds the bucket's lock.
Record** LinkTo(Bucket* bucket, cudnnBackendDescriptor_t descriptor) {
  Record** link = &bucket->chain;
  while (*link != nullptr && (*link)->descriptor != descriptor) {
    link = &(*link)->next;
  }
  return link;
}

Record* TakeOut(Bucket* bucket, cudnnBackendDescriptor_t descriptor) {
  Record** link = LinkTo(bucket, descriptor);
  Record* found = *link;
  if (found != nullptr) {
    *link = found->next;
  }
  return found;
}

}  // namespace

void Remember(cudnnBackendDescriptor_t descriptor, cudnnBackendDescriptorType_t type) {
  const size_t size = WithShadowOf(type, []<typename Shadow>(Shadow Record::*) {
    return offsetof(Record, tensor) + sizeof(Shadow);
  });
  Record* record = size == 0 ? nullptr : static_cast<Record*>(calloc(1, size));
  Bucket* bucket = BucketOf(descriptor);
  Record* stale = nullptr;
  {
    const LockedBucket locked(bucket);
    // One that was destroyed where we could not see it.
    stale = TakeOut(bucket, descriptor);
    if (record != nullptr) {
      record->descriptor = descriptor;
      record->type = type;
      if (ConvolutionOf(type) != 0) {
        record->operation.convolution = ConvolutionOf(type);
      }
      record->next = bucket->chain;
      bucket->chain = record;
    }
  }
  Free(stale);
}

Record* FindRecord(cudnnBackendDescriptor_t descriptor) {
  Bucket* bucket = BucketOf(descriptor);
  const LockedBucket locked(bucket);
  return *LinkTo(bucket, descriptor);
}

void Forget(cudnnBackendDescriptor_t descriptor) {
  Bucket* bucket = BucketOf(descriptor);
  Record* record = nullptr;
  {
    const LockedBucket locked(bucket);
    record = TakeOut(bucket, descriptor);
  }
  Free(record);
}

void OpenShadowLocks() {
  for (Bucket& bucket : buckets) {
    bucket.locked.store(0, std::memory_order_relaxed);
  }
}

}  // namespace convtune::preload

// Descriptors of our own, made behind the hooks.
#pragma once

#include <cudnn.h>

#include "client/preload/process/real_cudnn.h"

namespace convtune::preload::process {

// Owns a descriptor, unless it could not be made.
class Descriptor {
 public:
  explicit Descriptor(cudnnBackendDescriptor_t raw) : raw_(raw) {}
  explicit Descriptor(cudnnBackendDescriptorType_t type) {
    if (Real().Create(type, &raw_) != CUDNN_STATUS_SUCCESS) {
      raw_ = nullptr;
    }
  }
  ~Descriptor() {
    if (raw_ != nullptr) {
      Real().Destroy(raw_);
    }
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  explicit operator bool() const { return raw_ != nullptr; }
  cudnnBackendDescriptor_t get() const { return raw_; }
  cudnnBackendDescriptor_t* address() { return &raw_; }
  cudnnBackendDescriptor_t Release() {
    cudnnBackendDescriptor_t raw = raw_;
    raw_ = nullptr;
    return raw;
  }

 private:
  cudnnBackendDescriptor_t raw_ = nullptr;
};

// Owns `most` descriptors of a type, at most kMost; fewer if cuDNN makes no more.
class Descriptors {
 public:
  static constexpr int kMost = 128;

  Descriptors(cudnnBackendDescriptorType_t type, int most) {
    while (count_ < most && Real().Create(type, &raw_[count_]) == CUDNN_STATUS_SUCCESS) {
      ++count_;
    }
  }
  ~Descriptors() {
    while (count_ > 0) {
      Real().Destroy(raw_[--count_]);
    }
  }
  Descriptors(const Descriptors&) = delete;
  Descriptors& operator=(const Descriptors&) = delete;

  int count() const { return count_; }
  cudnnBackendDescriptor_t operator[](int i) const { return raw_[i]; }
  cudnnBackendDescriptor_t* data() { return raw_; }

 private:
  cudnnBackendDescriptor_t raw_[kMost];
  int count_ = 0;
};

}  // namespace convtune::preload::process

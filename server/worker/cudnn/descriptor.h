// A Descriptor owns a backend descriptor of cuDNN.
#pragma once

#include <cudnn.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace convtune::worker::cudnn {

// Owns one cudnnBackendDescriptor_t. Move-only; not thread-safe. All errors
// are those of cudnn_status.h, with cuDNN's own text.
class Descriptor {
 public:
  static absl::StatusOr<Descriptor> Create(cudnnBackendDescriptorType_t type);

  // Empty; get() is null.
  Descriptor() = default;
  Descriptor(Descriptor&& other) noexcept : raw_(std::exchange(other.raw_, nullptr)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(raw_, other.raw_);
    return *this;
  }
  ~Descriptor();

  cudnnBackendDescriptor_t get() const { return raw_; }

  absl::Status SetInt64(cudnnBackendAttributeName_t name, int64_t value);
  absl::Status SetInt64s(cudnnBackendAttributeName_t name, absl::Span<const int64_t> values);
  absl::Status SetInt32(cudnnBackendAttributeName_t name, int32_t value);
  absl::Status SetBool(cudnnBackendAttributeName_t name, bool value);
  absl::Status SetFloat(cudnnBackendAttributeName_t name, float value);
  absl::Status SetDouble(cudnnBackendAttributeName_t name, double value);
  absl::Status SetDataType(cudnnBackendAttributeName_t name, cudnnDataType_t value);
  absl::Status SetText(cudnnBackendAttributeName_t name, std::string_view value);
  absl::Status SetPointers(cudnnBackendAttributeName_t name, absl::Span<void* const> values);
  absl::Status SetHandle(cudnnBackendAttributeName_t name, cudnnHandle_t value);
  absl::Status SetDescriptor(cudnnBackendAttributeName_t name, const Descriptor& value);
  absl::Status SetDescriptors(cudnnBackendAttributeName_t name,
                              absl::Span<const Descriptor> values);
  // For the enumerations that have a type of their own.
  template <typename T>
  absl::Status SetEnum(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                       T value) {
    return Set(name, type, 1, &value);
  }

  absl::Status Finalize();

  absl::StatusOr<int64_t> GetInt64(cudnnBackendAttributeName_t name) const;
  // Number of elements that Get* of a list would give.
  absl::StatusOr<int64_t> Count(cudnnBackendAttributeName_t name,
                                cudnnBackendAttributeType_t type) const;
  // One or all of an attribute that is made of enumerators.
  template <typename T>
  absl::StatusOr<std::vector<T>> GetEnums(cudnnBackendAttributeName_t name,
                                          cudnnBackendAttributeType_t type) const {
    absl::StatusOr<int64_t> count = Count(name, type);
    if (!count.ok()) {
      return count.status();
    }
    std::vector<T> values(static_cast<size_t>(*count));
    absl::StatusOr<int64_t> got = Get(name, type, *count, values.data());
    if (!got.ok()) {
      return got.status();
    }
    values.resize(static_cast<size_t>(*got));
    return values;
  }
  // The descriptors of a list whose elements are of type `element`. With `most`
  // up to so many are asked for, without asking for their count first.
  absl::StatusOr<std::vector<Descriptor>> GetDescriptors(
      cudnnBackendAttributeName_t name, cudnnBackendDescriptorType_t element) const;
  absl::StatusOr<std::vector<Descriptor>> GetDescriptors(cudnnBackendAttributeName_t name,
                                                         cudnnBackendDescriptorType_t element,
                                                         int64_t most) const;
  // The one descriptor of an attribute.
  absl::StatusOr<Descriptor> GetDescriptor(cudnnBackendAttributeName_t name,
                                           cudnnBackendDescriptorType_t element) const;

 private:
  explicit Descriptor(cudnnBackendDescriptor_t raw) : raw_(raw) {}

  absl::Status Set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                   int64_t count, const void* values);
  // Returns how many elements were written.
  absl::StatusOr<int64_t> Get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                              int64_t count, void* values) const;

  cudnnBackendDescriptor_t raw_ = nullptr;
};

}  // namespace convtune::worker::cudnn

// A Descriptor owns a backend descriptor of cuDNN.
#pragma once

#include <cudnn.h>

#include <cstdint>
#include <optional>
#include <type_traits>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "server/worker/cudnn/owned.h"

namespace convtune::worker::cudnn {

// cuDNN's type of an attribute, by the C++ type of its elements.
using AttributeType = cudnnBackendAttributeType_t;
constexpr AttributeType TypeOf(const int64_t*) { return CUDNN_TYPE_INT64; }
constexpr AttributeType TypeOf(const int32_t*) { return CUDNN_TYPE_INT32; }
constexpr AttributeType TypeOf(const bool*) { return CUDNN_TYPE_BOOLEAN; }
constexpr AttributeType TypeOf(const float*) { return CUDNN_TYPE_FLOAT; }
constexpr AttributeType TypeOf(const double*) { return CUDNN_TYPE_DOUBLE; }
constexpr AttributeType TypeOf(const char*) { return CUDNN_TYPE_CHAR; }
constexpr AttributeType TypeOf(void* const*) { return CUDNN_TYPE_VOID_PTR; }
constexpr AttributeType TypeOf(const cudnnHandle_t*) { return CUDNN_TYPE_HANDLE; }
constexpr AttributeType TypeOf(const cudnnDataType_t*) { return CUDNN_TYPE_DATA_TYPE; }
constexpr AttributeType TypeOf(const cudnnConvolutionMode_t*) {
  return CUDNN_TYPE_CONVOLUTION_MODE;
}
constexpr AttributeType TypeOf(const cudnnPointwiseMode_t*) { return CUDNN_TYPE_POINTWISE_MODE; }
constexpr AttributeType TypeOf(const cudnnBackendKnobType_t*) { return CUDNN_TYPE_KNOB_TYPE; }
constexpr AttributeType TypeOf(const cudnnBackendHeurMode_t*) { return CUDNN_TYPE_HEUR_MODE; }
constexpr AttributeType TypeOf(const cudnnBackendNumericalNote_t*) {
  return CUDNN_TYPE_NUMERICAL_NOTE;
}
constexpr AttributeType TypeOf(const cudnnBackendBehaviorNote_t*) {
  return CUDNN_TYPE_BEHAVIOR_NOTE;
}

// Owns one cudnnBackendDescriptor_t. Move-only; not thread-safe. All errors
// are those of cudnn_status.h, with cuDNN's own text.
class Descriptor {
 public:
  static absl::StatusOr<Descriptor> Create(cudnnBackendDescriptorType_t type);

  // Empty; get() is null.
  Descriptor() = default;

  cudnnBackendDescriptor_t get() const { return raw_.get(); }

  // Sets an attribute to one element, or to those of a container. The first error is what
  // Finalize() returns.
  template <typename T>
  void Set(cudnnBackendAttributeName_t name, const T& value) {
    if constexpr (requires { value.data(); }) {
      SetElements(name, TypeOf(value.data()), value.size(), value.data());
    } else {
      SetElements(name, TypeOf(&value), 1, &value);
    }
  }
  void Set(cudnnBackendAttributeName_t name, const Descriptor& value);
  void Set(cudnnBackendAttributeName_t name, const std::vector<Descriptor>& values);

  absl::Status Finalize();

  // The one element of an attribute. An enumerator that is not there is INTERNAL, a number that is
  // not there is 0.
  template <typename T>
  absl::StatusOr<T> Get(cudnnBackendAttributeName_t name) const {
    T value = {};
    ASSIGN_OR_RETURN(const int64_t count, GetElements(name, TypeOf(&value), 1, &value));
    if (std::is_enum_v<T> && count != 1) {
      return absl::InternalError(
          absl::StrCat("attribute ", static_cast<int>(name), " has no value"));
    }
    return value;
  }
  // All of an attribute that is made of enumerators.
  template <typename T>
  absl::StatusOr<std::vector<T>> GetAll(cudnnBackendAttributeName_t name) const {
    std::vector<T> values;
    ASSIGN_OR_RETURN(const int64_t count, Count(name, TypeOf(values.data())));
    values.resize(static_cast<size_t>(count));
    ASSIGN_OR_RETURN(const int64_t got,
                     GetElements(name, TypeOf(values.data()), count, values.data()));
    values.resize(static_cast<size_t>(got));
    return values;
  }
  // Number of elements that Get* of a list would give.
  absl::StatusOr<int64_t> Count(cudnnBackendAttributeName_t name, AttributeType type) const;
  // The descriptors of a list whose elements are of type `element`: `most` at most, or as many as
  // cuDNN says that there are.
  absl::StatusOr<std::vector<Descriptor>> GetDescriptors(
      cudnnBackendAttributeName_t name, cudnnBackendDescriptorType_t element,
      std::optional<int64_t> most = std::nullopt) const;

 private:
  void SetElements(cudnnBackendAttributeName_t name, AttributeType type, size_t count,
                   const void* values);
  // Returns how many elements were written.
  absl::StatusOr<int64_t> GetElements(cudnnBackendAttributeName_t name, AttributeType type,
                                      int64_t count, void* values) const;

  Owned<cudnnBackendDescriptor_t, cudnnBackendDestroyDescriptor> raw_;
  absl::Status status_;  // of what was set
};

}  // namespace convtune::worker::cudnn

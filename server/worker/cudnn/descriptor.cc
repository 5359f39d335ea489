#include "server/worker/cudnn/descriptor.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "server/worker/cudnn/cudnn_status.h"

namespace convtune::worker::cudnn {

absl::StatusOr<Descriptor> Descriptor::Create(cudnnBackendDescriptorType_t type) {
  cudnnBackendDescriptor_t raw = nullptr;
  RETURN_IF_ERROR(ToStatus(cudnnBackendCreateDescriptor(type, &raw),
                           absl::StrCat("create descriptor ", static_cast<int>(type))));
  return Descriptor(raw);
}

Descriptor::~Descriptor() {
  if (raw_ != nullptr) {
    cudnnBackendDestroyDescriptor(raw_);
  }
}

absl::Status Descriptor::SetInt64(cudnnBackendAttributeName_t name, int64_t value) {
  return Set(name, CUDNN_TYPE_INT64, 1, &value);
}

absl::Status Descriptor::SetInt64s(cudnnBackendAttributeName_t name,
                                   absl::Span<const int64_t> values) {
  return Set(name, CUDNN_TYPE_INT64, static_cast<int64_t>(values.size()), values.data());
}

absl::Status Descriptor::SetInt32(cudnnBackendAttributeName_t name, int32_t value) {
  return Set(name, CUDNN_TYPE_INT32, 1, &value);
}

absl::Status Descriptor::SetBool(cudnnBackendAttributeName_t name, bool value) {
  return Set(name, CUDNN_TYPE_BOOLEAN, 1, &value);
}

absl::Status Descriptor::SetFloat(cudnnBackendAttributeName_t name, float value) {
  return Set(name, CUDNN_TYPE_FLOAT, 1, &value);
}

absl::Status Descriptor::SetDouble(cudnnBackendAttributeName_t name, double value) {
  return Set(name, CUDNN_TYPE_DOUBLE, 1, &value);
}

absl::Status Descriptor::SetDataType(cudnnBackendAttributeName_t name, cudnnDataType_t value) {
  return Set(name, CUDNN_TYPE_DATA_TYPE, 1, &value);
}

absl::Status Descriptor::SetText(cudnnBackendAttributeName_t name, std::string_view value) {
  return Set(name, CUDNN_TYPE_CHAR, static_cast<int64_t>(value.size()), value.data());
}

absl::Status Descriptor::SetPointers(cudnnBackendAttributeName_t name,
                                     absl::Span<void* const> values) {
  return Set(name, CUDNN_TYPE_VOID_PTR, static_cast<int64_t>(values.size()), values.data());
}

absl::Status Descriptor::SetHandle(cudnnBackendAttributeName_t name, cudnnHandle_t value) {
  return Set(name, CUDNN_TYPE_HANDLE, 1, &value);
}

absl::Status Descriptor::SetDescriptor(cudnnBackendAttributeName_t name, const Descriptor& value) {
  return Set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value.raw_);
}

absl::Status Descriptor::SetDescriptors(cudnnBackendAttributeName_t name,
                                        absl::Span<const Descriptor> values) {
  std::vector<cudnnBackendDescriptor_t> raw;
  raw.reserve(values.size());
  for (const Descriptor& value : values) {
    raw.push_back(value.raw_);
  }
  return Set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, static_cast<int64_t>(raw.size()), raw.data());
}

absl::Status Descriptor::Finalize() { return ToStatus(cudnnBackendFinalize(raw_), "finalize"); }

absl::StatusOr<int64_t> Descriptor::GetInt64(cudnnBackendAttributeName_t name) const {
  int64_t value = 0;
  RETURN_IF_ERROR(Get(name, CUDNN_TYPE_INT64, 1, &value).status());
  return value;
}

absl::StatusOr<int64_t> Descriptor::Count(cudnnBackendAttributeName_t name,
                                          cudnnBackendAttributeType_t type) const {
  return Get(name, type, 0, nullptr);
}

absl::StatusOr<std::vector<Descriptor>> Descriptor::GetDescriptors(
    cudnnBackendAttributeName_t name, cudnnBackendDescriptorType_t element) const {
  ASSIGN_OR_RETURN(const int64_t count, Count(name, CUDNN_TYPE_BACKEND_DESCRIPTOR));
  return GetDescriptors(name, element, count);
}

absl::StatusOr<std::vector<Descriptor>> Descriptor::GetDescriptors(
    cudnnBackendAttributeName_t name, cudnnBackendDescriptorType_t element, int64_t most) const {
  std::vector<Descriptor> values;
  std::vector<cudnnBackendDescriptor_t> raw;
  for (int64_t i = 0; i < most; ++i) {
    ASSIGN_OR_RETURN(Descriptor value, Create(element));
    raw.push_back(value.raw_);
    values.push_back(std::move(value));
  }
  if (most == 0) {
    return values;
  }
  ASSIGN_OR_RETURN(const int64_t got, Get(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, most, raw.data()));
  values.resize(static_cast<size_t>(std::min(most, got)));
  return values;
}

absl::StatusOr<Descriptor> Descriptor::GetDescriptor(cudnnBackendAttributeName_t name,
                                                     cudnnBackendDescriptorType_t element) const {
  ASSIGN_OR_RETURN(Descriptor value, Create(element));
  cudnnBackendDescriptor_t raw = value.raw_;
  RETURN_IF_ERROR(Get(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &raw).status());
  return value;
}

absl::Status Descriptor::Set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                             int64_t count, const void* values) {
  return ToStatus(cudnnBackendSetAttribute(raw_, name, type, count, values),
                  absl::StrCat("set attribute ", static_cast<int>(name)));
}

absl::StatusOr<int64_t> Descriptor::Get(cudnnBackendAttributeName_t name,
                                        cudnnBackendAttributeType_t type, int64_t count,
                                        void* values) const {
  int64_t got = 0;
  RETURN_IF_ERROR(ToStatus(cudnnBackendGetAttribute(raw_, name, type, count, &got, values),
                           absl::StrCat("get attribute ", static_cast<int>(name))));
  return got;
}

}  // namespace convtune::worker::cudnn

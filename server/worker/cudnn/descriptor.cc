#include "server/worker/cudnn/descriptor.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/worker/cudnn/cudnn_status.h"

namespace convtune::worker::cudnn {

absl::StatusOr<Descriptor> Descriptor::Create(cudnnBackendDescriptorType_t type) {
  cudnnBackendDescriptor_t raw = nullptr;
  RETURN_IF_ERROR(ToStatus(cudnnBackendCreateDescriptor(type, &raw),
                           absl::StrCat("create descriptor ", static_cast<int>(type))));
  Descriptor descriptor;
  descriptor.raw_.reset(raw);
  return descriptor;
}

void Descriptor::Set(cudnnBackendAttributeName_t name, const Descriptor& value) {
  const cudnnBackendDescriptor_t raw = value.get();
  SetElements(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &raw);
}

void Descriptor::Set(cudnnBackendAttributeName_t name, const std::vector<Descriptor>& values) {
  std::vector<cudnnBackendDescriptor_t> raw;
  for (const Descriptor& value : values) raw.push_back(value.get());
  SetElements(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, raw.size(), raw.data());
}

absl::Status Descriptor::Finalize() {
  return status_.ok() ? ToStatus(cudnnBackendFinalize(get()), "finalize") : status_;
}

absl::StatusOr<int64_t> Descriptor::Count(cudnnBackendAttributeName_t name,
                                          AttributeType type) const {
  return GetElements(name, type, 0, nullptr);
}

absl::StatusOr<std::vector<Descriptor>> Descriptor::GetDescriptors(
    cudnnBackendAttributeName_t name, cudnnBackendDescriptorType_t element,
    std::optional<int64_t> most) const {
  if (!most) {
    ASSIGN_OR_RETURN(most, Count(name, CUDNN_TYPE_BACKEND_DESCRIPTOR));
  }
  std::vector<Descriptor> values;
  std::vector<cudnnBackendDescriptor_t> raw;
  for (int64_t i = 0; i < *most; ++i) {
    ASSIGN_OR_RETURN(Descriptor value, Create(element));
    raw.push_back(value.get());
    values.push_back(std::move(value));
  }
  if (values.empty()) return values;
  ASSIGN_OR_RETURN(const int64_t got,
                   GetElements(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, *most, raw.data()));
  values.resize(static_cast<size_t>(std::min(*most, got)));
  return values;
}

void Descriptor::SetElements(cudnnBackendAttributeName_t name, AttributeType type, size_t count,
                             const void* values) {
  if (!status_.ok()) return;
  status_ =
      ToStatus(cudnnBackendSetAttribute(get(), name, type, static_cast<int64_t>(count), values),
               absl::StrCat("set attribute ", static_cast<int>(name)));
}

absl::StatusOr<int64_t> Descriptor::GetElements(cudnnBackendAttributeName_t name,
                                                AttributeType type, int64_t count,
                                                void* values) const {
  int64_t got = 0;
  RETURN_IF_ERROR(ToStatus(cudnnBackendGetAttribute(get(), name, type, count, &got, values),
                           absl::StrCat("get attribute ", static_cast<int>(name))));
  return got;
}

}  // namespace convtune::worker::cudnn

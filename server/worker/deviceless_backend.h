// A DevicelessBackend has cuDNN plan for a GPU that is not there.
#pragma once

#include <memory>

#include "server/worker/backend.h"
#include "server/worker/cudnn/descriptor.h"
#include "server/worker/device/device_info.h"

namespace convtune::worker {

// Lists and builds plans; Run and the legacy search answer
// FAILED_PRECONDITION. Needs no driver.
class DevicelessBackend : public Backend {
 public:
  // INVALID_ARGUMENT or INTERNAL if cuDNN does not take the properties.
  static absl::StatusOr<std::unique_ptr<DevicelessBackend>> Create(
      const device::DeviceProfile& profile);

  const Environment& environment() const override { return info_.environment; }
  const Provenance& provenance() const override { return info_.provenance; }
  bool has_gpu() const override { return false; }
  ConditionsLook LookAtConditions() override { return {{}, "a profile has no GPU"}; }
  absl::StatusOr<std::unique_ptr<BackendProblem>> Open(const ConvProblem& problem,
                                                       int64_t memory_budget_bytes) override;

 private:
  DevicelessBackend(device::DeviceInfo info, cudnn::Descriptor properties)
      : info_(std::move(info)), properties_(std::move(properties)) {}

  const device::DeviceInfo info_;
  const cudnn::Descriptor properties_;
};

}  // namespace convtune::worker

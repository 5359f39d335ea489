// cuDNN's planning for a GPU that is not there.
#pragma once

#include <memory>

#include "server/worker/backend.h"
#include "server/worker/descriptor.h"
#include "server/worker/device_info.h"

namespace convtune {

// Lists and builds plans; Run and the legacy search answer
// FAILED_PRECONDITION. Needs neither a driver nor libcuda.
class DevicelessBackend : public Backend {
 public:
  // INVALID_ARGUMENT or INTERNAL if cuDNN does not take the properties.
  static absl::StatusOr<std::unique_ptr<DevicelessBackend>> Create(const DeviceProfile& profile);

  const Environment& environment() const override { return info_.environment; }
  const Provenance& provenance() const override { return info_.provenance; }
  bool has_gpu() const override { return false; }
  ConditionsLook LookAtConditions() override { return {{}, "a profile has no GPU"}; }
  absl::StatusOr<std::unique_ptr<BackendProblem>> Open(const ConvProblem& problem,
                                                       int64_t memory_budget_bytes) override;

 private:
  DevicelessBackend(DeviceInfo info, Descriptor properties)
      : info_(std::move(info)), properties_(std::move(properties)) {}

  const DeviceInfo info_;
  const Descriptor properties_;
};

}  // namespace convtune

#include "server/convtuned/device_health.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace convtune::daemon {

void DeviceHealth::Note(const std::string& device, bool lost) {
  MutexLock lock(mutex_);
  lost_[device] = lost;
  TellAll();
}

void DeviceHealth::Attach(rpc::Server* server) {
  MutexLock lock(mutex_);
  server_ = server;
  TellAll();
}

void DeviceHealth::TellAll() {
  if (server_ == nullptr) return;
  for (const auto& [device, lost] : lost_) {
    server_->SetServing(absl::StrCat("devices/", device), !lost);
  }
  server_->SetServing("devices", std::none_of(lost_.begin(), lost_.end(),
                                              [](const auto& entry) { return entry.second; }));
}

}  // namespace convtune::daemon

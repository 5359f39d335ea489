#include "server/convtuned/health_reporter.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace convtune::convtuned {

void HealthReporter::Note(const std::string& device, bool lost) {
  MutexLock lock(mutex_);
  lost_[device] = lost;
  TellAll();
}

void HealthReporter::Attach(rpc::Server* server) {
  MutexLock lock(mutex_);
  server_ = server;
  TellAll();
}

void HealthReporter::TellAll() {
  if (server_ == nullptr) return;
  for (const auto& [device, lost] : lost_) {
    server_->SetServing(absl::StrCat("devices/", device), !lost);
  }
  server_->SetServing("devices", std::none_of(lost_.begin(), lost_.end(),
                                              [](const auto& entry) { return entry.second; }));
}

}  // namespace convtune::convtuned

#include "server/devices/gpu_health.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/monitoring/log.h"
#include "server/devices/xid.h"

namespace convtune::devices {

void GpuHealth::SetListener(Listener listener) {
  MutexLock lock(mutex_);
  listener_ = std::move(listener);
  if (!listener_) return;
  for (const auto& [name, device] : devices_) listener_(name, !device.lost.empty());
}

void GpuHealth::Add(const std::string& device) {
  MutexLock lock(mutex_);
  if (devices_.try_emplace(device).second && listener_) listener_(device, false);
}

void GpuHealth::Note(const std::string& name, const GpuEvent& news) {
  MutexLock lock(mutex_);
  const auto found = devices_.find(name);
  if (found == devices_.end()) return;
  Device* device = &found->second;
  switch (news.kind) {
    case GpuEvent::Kind::kXid:
      NoteXid(name, news.xid, device);
      return;
    case GpuEvent::Kind::kLost:
      Lose(name, news.reason, device);
      return;
    case GpuEvent::Kind::kBack:
      if (device->lost.empty()) return;
      log::Info("$0: the GPU is back", name);
      device->lost.clear();
      if (listener_) listener_(name, false);
  }
}

void GpuHealth::NoteXid(const std::string& name, int64_t xid, Device* device) {
  // They may come by the thousand.
  const int64_t count = ++device->xids[xid];
  if ((count & (count - 1)) == 0) {
    log::Warn("$0: the driver reports $1, $2 by now", name, DescribeXid(xid), count);
  }
  const XidKind kind = KindOfXid(xid);
  if (kind == XidKind::kApplication) device->stale = true;
  if (kind == XidKind::kLost) Lose(name, DescribeXid(xid), device);
}

void GpuHealth::Lose(const std::string& name, const std::string& reason, Device* device) {
  if (!device->lost.empty()) return;
  log::Error("$0: the GPU is lost: $1", name, reason);
  device->lost = reason;
  if (listener_) listener_(name, true);
  if (device->interrupt) device->interrupt();
}

std::vector<GpuStatus> GpuHealth::List() const {
  std::vector<GpuStatus> statuses;
  MutexLock lock(mutex_);
  for (const auto& [name, device] : devices_) statuses.push_back({name, device.lost, device.xids});
  return statuses;
}

absl::Status GpuHealth::Check(const std::string& device) const {
  MutexLock lock(mutex_);
  const auto found = devices_.find(device);
  if (found == devices_.end() || found->second.lost.empty()) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("the GPU is lost: ", found->second.lost));
}

bool GpuHealth::TakeStale(const std::string& device) {
  MutexLock lock(mutex_);
  const auto found = devices_.find(device);
  return found != devices_.end() && std::exchange(found->second.stale, false);
}

void GpuHealth::SetInterrupt(const std::string& device, std::function<void()> interrupt) {
  MutexLock lock(mutex_);
  const auto found = devices_.find(device);
  if (found != devices_.end()) found->second.interrupt = std::move(interrupt);
}

}  // namespace convtune::devices

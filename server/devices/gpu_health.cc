#include "server/devices/gpu_health.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "proto/monitoring/log.h"

namespace convtune::devices {
namespace {

// Xids by what they mean, in ascending order, since KindOfXid searches by halving. Any other
// Xid is kNotice.
constexpr std::array kLost = {46,  48,  62,  64,  74,  79,  95,  109, 110, 119,
                              120, 136, 140, 143, 155, 156, 158, 160, 162};
constexpr std::array kApplication = {8,  11, 13, 25, 31, 32, 39, 40, 41, 43, 45,
                                     60, 68, 69, 70, 71, 72, 75, 76, 77, 80, 94};

constexpr std::pair<int64_t, const char*> kWords[] = {
    {13, "an exception in a kernel"},
    {31, "a page fault"},
    {43, "a channel was reset"},
    {45, "a context was taken down"},
    {48, "an uncorrectable memory error"},
    {62, "the power management unit halted"},
    {63, "a memory page is to be retired"},
    {64, "a memory page could not be retired"},
    {74, "NVLink failed"},
    {79, "the GPU has fallen off the bus"},
    {94, "a contained memory error"},
    {95, "an uncontained memory error"},
    {109, "a context switch timed out"},
    {119, "the GPU's firmware does not answer"},
    {120, "the GPU's firmware failed"},
    {140, "an unrecovered memory error"},
    {143, "the GPU could not be started"},
    {154, "the recovery action changed"},
};

}  // namespace

XidKind KindOfXid(int64_t xid) {
  if (std::binary_search(kLost.begin(), kLost.end(), xid)) return XidKind::kLost;
  if (std::binary_search(kApplication.begin(), kApplication.end(), xid)) {
    return XidKind::kApplication;
  }
  return XidKind::kNotice;
}

std::string DescribeXid(int64_t xid) {
  const auto* found = std::find_if(std::begin(kWords), std::end(kWords),
                                   [xid](const auto& words) { return words.first == xid; });
  return found == std::end(kWords) ? absl::StrCat("Xid ", xid)
                                   : absl::StrCat("Xid ", xid, " (", found->second, ")");
}

void GpuHealth::SetListener(Listener listener) {
  MutexLock lock(mutex_);
  listener_ = std::move(listener);
  for (const auto& [name, device] : devices_) Tell(name, !device.lost.empty());
}

void GpuHealth::Tell(const std::string& name, bool lost) const {
  if (!listener_) return;
  listener_(name, lost, std::any_of(devices_.begin(), devices_.end(), [](const auto& entry) {
              return !entry.second.lost.empty();
            }));
}

void GpuHealth::NoteXid(const std::string& name, int64_t xid) {
  MutexLock lock(mutex_);
  Device* const device = Find(name);
  if (device == nullptr) return;
  // They may come by the thousand.
  const int64_t count = ++device->xids[xid];
  if ((count & (count - 1)) == 0) {
    log::Warn("$0: the driver reports $1, $2 by now", name, DescribeXid(xid), count);
  }
  const XidKind kind = KindOfXid(xid);
  if (kind == XidKind::kApplication) device->stale = true;
  if (kind == XidKind::kLost) Lose(name, DescribeXid(xid), device);
}

void GpuHealth::NoteBack(const std::string& name) {
  MutexLock lock(mutex_);
  Device* const device = Find(name);
  if (device == nullptr || device->lost.empty()) return;
  log::Info("$0: the GPU is back", name);
  device->lost.clear();
  Tell(name, false);
}

void GpuHealth::Lose(const std::string& name, const std::string& reason, Device* device) {
  if (!device->lost.empty()) return;
  log::Error("$0: the GPU is lost: $1", name, reason);
  device->lost = reason;
  Tell(name, true);
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

}  // namespace convtune::devices

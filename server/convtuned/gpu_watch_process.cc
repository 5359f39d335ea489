#include "server/convtuned/gpu_watch_process.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "proto/base/status_macros.h"
#include "proto/monitoring/log.h"

namespace convtune::convtuned {
namespace {

constexpr size_t kMaxLine = 4096;
constexpr absl::Duration kRetry = absl::Seconds(2);
constexpr absl::Duration kRetryMax = absl::Minutes(1);  // where it is not the GPU that fails

}  // namespace

absl::StatusOr<std::unique_ptr<GpuWatchProcess>> GpuWatchProcess::Create(
    const supervisor::DeviceSpec& device, std::vector<std::string> command,
    devices::GpuHealth* health) {
  ASSIGN_OR_RETURN(std::unique_ptr<CancelToken> stop, CancelToken::Create());
  return std::unique_ptr<GpuWatchProcess>(
      new GpuWatchProcess(device, std::move(command), health, std::move(stop)));
}

GpuWatchProcess::GpuWatchProcess(const supervisor::DeviceSpec& device,
                                 std::vector<std::string> command, devices::GpuHealth* health,
                                 std::unique_ptr<CancelToken> stop)
    : device_(device.name),
      library_path_(device.cudnn.library_path),
      command_(std::move(command)),
      health_(health),
      stop_(std::move(stop)),
      thread_([this] { Run(); }) {}

GpuWatchProcess::~GpuWatchProcess() {
  stop_->Cancel();
  thread_.join();
}

void GpuWatchProcess::Run() {
  absl::Duration pause = kRetry;
  while (!stop_->cancelled()) {
    const bool was_lost = lost_;
    watching_ = false;
    const End end = WatchOnce();
    if (end == End::kUnwatchable && !lost_) return;
    // A GPU that is lost is looked at in the same intervals for ever; what
    // else fails is tried less and less often.
    const bool same = end == End::kLost || was_lost || watching_;
    pause = same ? kRetry : std::min(pause * 2, kRetryMax);
    stop_->WaitFor(pause);
  }
}

GpuWatchProcess::End GpuWatchProcess::WatchOnce() {
  const absl::StatusOr<std::unique_ptr<supervisor::WorkerProcess>> process =
      supervisor::WorkerProcess::Start(command_, library_path_);
  if (!process.ok()) {
    SayBlind(std::string(process.status().message()));
    return End::kFailed;
  }
  std::string text;
  while (WaitReadable((*process)->fd(), *stop_, SteadyTime::InfiniteFuture())) {
    char buffer[kMaxLine];
    const ssize_t count = read((*process)->fd(), buffer, sizeof(buffer));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    text.append(buffer, static_cast<size_t>(count));
    for (size_t end = text.find('\n'); end != std::string::npos; end = text.find('\n')) {
      const std::optional<End> last = Take(text.substr(0, end));
      text.erase(0, end + 1);
      if (last) return *last;
    }
    if (text.size() > kMaxLine) break;
  }
  return End::kFailed;
}

void GpuWatchProcess::SayBlind(const std::string& why) {
  if (std::exchange(blind_, true)) return;
  log::Warn("$0: nobody watches the GPU: $1", device_, why);
}

std::optional<GpuWatchProcess::End> GpuWatchProcess::Take(const std::string& line) {
  absl::string_view rest = line;
  int64_t xid = 0;
  if (line == "watching") {
    watching_ = true;
    if (!std::exchange(watched_, true)) log::Info("$0: the GPU is watched", device_);
    blind_ = false;
    if (std::exchange(lost_, false)) health_->NoteBack(device_);
    return std::nullopt;
  }
  if (absl::ConsumePrefix(&rest, "xid ") && absl::SimpleAtoi(rest, &xid)) {
    health_->NoteXid(device_, xid);
    if (devices::KindOfXid(xid) != devices::XidKind::kLost) return std::nullopt;
    lost_ = true;
    return End::kLost;
  }
  if (absl::ConsumePrefix(&rest, "unwatchable ")) {
    SayBlind(std::string(rest));
    return End::kUnwatchable;
  }
  const bool away = absl::ConsumePrefix(&rest, "away ");
  // What was never seen may be the watcher's own trouble.
  if ((away && watched_) || absl::ConsumePrefix(&rest, "lost ")) {
    if (!std::exchange(lost_, true)) health_->NoteLost(device_, std::string(rest));
    return End::kLost;
  }
  if (away) SayBlind(std::string(rest));
  return End::kFailed;
}

absl::StatusOr<std::vector<std::unique_ptr<GpuWatchProcess>>> WatchDevices(
    const std::string& worker, const std::vector<supervisor::DeviceSpec>& devices,
    const std::map<std::string, std::string>& pci_bus_ids, devices::GpuHealth* health) {
  std::vector<std::unique_ptr<GpuWatchProcess>> watchers;
  for (const supervisor::DeviceSpec& device : devices) {
    const auto found = pci_bus_ids.find(device.name);
    if (found == pci_bus_ids.end()) continue;
    ASSIGN_OR_RETURN(std::unique_ptr<GpuWatchProcess> watcher,
                     GpuWatchProcess::Create(device, {worker, "--watch", found->second}, health));
    watchers.push_back(std::move(watcher));
  }
  return watchers;
}

}  // namespace convtune::convtuned

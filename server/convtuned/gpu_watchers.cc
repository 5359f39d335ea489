#include "server/convtuned/gpu_watchers.h"

#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "proto/base/framing.h"
#include "proto/base/status_macros.h"
#include "proto/monitoring/log.h"
#include "proto/worker_client/worker_process.h"

namespace convtune::convtuned {
namespace {

constexpr absl::Duration kRetry = absl::Seconds(2);
constexpr absl::Duration kRetryOther = absl::Seconds(10);  // where its watch fails, not the GPU

// One GPU's process, and what it says of the GPU.
class Watch {
 public:
  Watch(const devices::DeviceSpec& device, const std::string& worker, devices::GpuHealth* health,
        const CancelToken* stop)
      : device_(device.name),
        library_path_(device.cudnn.library_path),
        command_{worker, "--watch", device.pci_bus_id},
        health_(health),
        stop_(stop) {}

  void Run() {
    while (!stop_->cancelled()) {
      const bool was_lost = lost_;
      watching_ = false;
      const End end = WatchOnce();
      if (end == End::kUnwatchable && !lost_) return;
      stop_->WaitFor(end == End::kLost || was_lost || watching_ ? kRetry : kRetryOther);
    }
  }

 private:
  // The way in which one process ended.
  enum class End { kLost, kFailed, kUnwatchable };

  End WatchOnce() {
    const absl::StatusOr<std::unique_ptr<WorkerProcess>> process =
        WorkerProcess::Start(command_, library_path_);
    if (!process.ok()) {
      SayBlind(std::string(process.status().message()));
      return End::kFailed;
    }
    while (WaitReadable((*process)->fd(), *stop_, SteadyTime::InfiniteFuture())) {
      const absl::StatusOr<std::string> message =
          ReadFrame((*process)->fd(), SteadyTime::Now() + kRetry);
      if (!message.ok()) break;
      if (const std::optional<End> last = Take(*message)) return *last;
    }
    if (!stop_->cancelled() && !std::exchange(said_end_, true)) {
      log::Warn("$0: the process that watches the GPU ended: $1; it is started again, always",
                device_, (*process)->Wait().description);
    }
    return End::kFailed;
  }

  void SayBlind(const std::string& why) {
    if (std::exchange(blind_, true)) return;
    log::Warn("$0: nobody watches the GPU: $1", device_, why);
  }

  // Reads a message of the process. Returns the way in which the process ends, if it is its last.
  std::optional<End> Take(const std::string& message) {
    absl::string_view rest = message;
    int64_t xid = 0;
    if (message == "watching") {
      watching_ = true;
      if (!watched_ || blind_) log::Info("$0: the GPU is watched", device_);
      watched_ = true;
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

  const std::string device_;
  const std::string library_path_;
  const std::vector<std::string> command_;
  devices::GpuHealth* const health_;
  const CancelToken* const stop_;
  bool watched_ = false;   // at any time
  bool watching_ = false;  // by the last process
  bool lost_ = false;
  bool blind_ = false;     // the log has said that nobody watches the GPU
  bool said_end_ = false;  // the log has said that a process ended by itself
};

}  // namespace

absl::StatusOr<std::unique_ptr<GpuWatchers>> GpuWatchers::Start(
    const std::string& worker, const std::vector<devices::DeviceSpec>& devices,
    devices::GpuHealth* health) {
  ASSIGN_OR_RETURN(std::unique_ptr<CancelToken> stop, CancelToken::Create());
  std::unique_ptr<GpuWatchers> watchers(new GpuWatchers(std::move(stop)));
  for (const devices::DeviceSpec& device : devices) {
    if (device.pci_bus_id.empty()) continue;
    watchers->threads_.emplace_back(
        [watch = Watch(device, worker, health, watchers->stop_.get())]() mutable { watch.Run(); });
  }
  return watchers;
}

GpuWatchers::~GpuWatchers() {
  stop_->Cancel();
  for (std::thread& thread : threads_) thread.join();
}

}  // namespace convtune::convtuned

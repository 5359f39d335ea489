// A GpuHealth holds the state of the GPUs: whether each is lost, and the errors that the
// driver reported.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/base/mutex.h"

namespace convtune::devices {

// A GpuEvent is a report of a GPU's watcher.
struct GpuEvent {
  enum class Kind {
    kXid,   // the driver reported an error; see KindOfXid
    kLost,  // the GPU cannot be used
    kBack   // it can be tried again
  };
  Kind kind = Kind::kXid;
  int64_t xid = 0;          // of kXid
  std::string reason = "";  // of kLost
};

struct GpuStatus {
  std::string device;
  std::string lost;                 // the reason for which the GPU is lost; empty: it is not
  std::map<int64_t, int64_t> xids;  // the number of reports of each
};

// Thread-safe. The watchers write it, the devices read it.
class GpuHealth {
 public:
  // A Listener is called with whether a device's GPU is lost: for all devices at once,
  // then on every change. It is called with a lock held, so it must return at once and
  // must not call GpuHealth.
  using Listener = std::function<void(const std::string& device, bool lost)>;
  void SetListener(Listener listener);

  void Add(const std::string& device);
  // News of a device that was not added are ignored.
  void Note(const std::string& name, const GpuEvent& news);
  std::vector<GpuStatus> List() const;

  // The device's side. A device that was not added is never lost.
  //
  // UNAVAILABLE with the reason while the GPU is lost.
  absl::Status Check(const std::string& device) const;
  // True once after an application's Xid: whatever context there is may be gone.
  bool TakeStale(const std::string& device);
  // Called when the GPU is lost, as a Listener; empty: no more.
  void SetInterrupt(const std::string& device, std::function<void()> interrupt);

 private:
  struct Device {
    std::string lost;
    bool stale = false;
    std::map<int64_t, int64_t> xids;
    std::function<void()> interrupt;
  };

  void NoteXid(const std::string& name, int64_t xid, Device* device) REQUIRES(mutex_);
  void Lose(const std::string& name, const std::string& reason, Device* device) REQUIRES(mutex_);

  mutable Mutex mutex_;
  Listener listener_ GUARDED_BY(mutex_);
  std::map<std::string, Device> devices_ GUARDED_BY(mutex_);
};

}  // namespace convtune::devices

// A GpuHealth holds the state of the GPUs: whether each is lost, and the errors that the
// driver reported. KindOfXid says what one of these means.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "proto/base/mutex.h"

namespace convtune::devices {

enum class XidKind {
  kLost,         // nothing more can be run on the GPU before it is reset
  kApplication,  // a program's context is lost, the GPU works
  kNotice        // no context is lost
};

// Of NVIDIA's catalogue of Xids (docs.nvidia.com/deploy/xid-errors: "Analyzing Xid Errors with the
// Xid Catalog"), by its immediate action: RESET_GPU, RESTART_BM and the workflows of 48 and 74 are
// kLost, RESTART_APP is kApplication, as are 43 and 45, which are a program's end. Any other
// number is kNotice: where it needs a reset all the same, the driver says so by its recovery
// action (see NvmlWatch).
XidKind KindOfXid(int64_t xid);

// "Xid 79 (the GPU has fallen off the bus)"; without words for most.
std::string DescribeXid(int64_t xid);

struct GpuStatus {
  std::string device;
  std::string lost;                 // the reason for which the GPU is lost; empty: it is not
  std::map<int64_t, int64_t> xids;  // the number of reports of each
};

// Thread-safe. The watchers write it, the devices read it.
class GpuHealth {
 public:
  // A Listener is called with whether a device's GPU is lost, and whether any is: for all devices
  // at once, then on every change. It is called with a lock held, so it must return at once and
  // must not call GpuHealth.
  using Listener = std::function<void(const std::string& device, bool lost, bool any_lost)>;
  void SetListener(Listener listener);

  void Add(const std::string& device) {
    MutexLock lock(mutex_);
    if (devices_.try_emplace(device).second) Tell(device, false);
  }
  // News of a device, which are ignored where it was not added: the driver reported an error
  // (see KindOfXid), the GPU cannot be used, it can be tried again.
  void NoteXid(const std::string& name, int64_t xid);
  void NoteLost(const std::string& name, const std::string& reason) {
    MutexLock lock(mutex_);
    if (Device* const device = Find(name)) Lose(name, reason, device);
  }
  void NoteBack(const std::string& name);
  std::vector<GpuStatus> List() const;

  // The device's side. A device that was not added is never lost.
  //
  // UNAVAILABLE with the reason while the GPU is lost.
  absl::Status Check(const std::string& device) const;
  // True once after an application's Xid: whatever context there is may be gone.
  bool TakeStale(const std::string& device) {
    MutexLock lock(mutex_);
    Device* const found = Find(device);
    return found != nullptr && std::exchange(found->stale, false);
  }
  // Sets the function that is called when the device's GPU is lost, under the rules of a Listener;
  // empty: none.
  void SetInterrupt(const std::string& device, std::function<void()> interrupt) {
    MutexLock lock(mutex_);
    if (Device* const found = Find(device)) found->interrupt = std::move(interrupt);
  }

 private:
  struct Device {
    std::string lost;
    bool stale = false;
    std::map<int64_t, int64_t> xids;
    std::function<void()> interrupt;
  };

  // nullptr where it was not added.
  Device* Find(const std::string& name) REQUIRES(mutex_) {
    const auto found = devices_.find(name);
    return found != devices_.end() ? &found->second : nullptr;
  }
  void Tell(const std::string& name, bool lost) const REQUIRES(mutex_);
  void Lose(const std::string& name, const std::string& reason, Device* device) REQUIRES(mutex_);

  mutable Mutex mutex_;
  Listener listener_ GUARDED_BY(mutex_);
  std::map<std::string, Device> devices_ GUARDED_BY(mutex_);
};

}  // namespace convtune::devices

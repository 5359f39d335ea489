// HealthReporter tells the health service which devices have their GPU.
#pragma once

#include <map>
#include <string>

#include "proto/base/mutex.h"
#include "server/rpc/server.h"

namespace convtune::convtuned {

// Health "devices/NAME" is whether that device has its GPU, "devices" whether
// all have. Liveness and readiness have nothing to do with it: what is known is
// answered without a device. Thread-safe; calls nothing but the server.
class HealthReporter {
 public:
  // A GpuHealth::Listener.
  void Note(const std::string& device, bool lost);
  // From now on the server is told, beginning with what is known. It must be
  // detached (nullptr) before it ends.
  void Attach(rpc::Server* server);

 private:
  void TellAll() REQUIRES(mutex_);

  Mutex mutex_;
  rpc::Server* server_ GUARDED_BY(mutex_) = nullptr;
  std::map<std::string, bool> lost_ GUARDED_BY(mutex_);
};

}  // namespace convtune::convtuned

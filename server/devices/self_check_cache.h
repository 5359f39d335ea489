// A SelfCheckCache keeps the outcomes of workers' self-checks. A worker that has passed
// need not check itself at every start, and a step that killed a worker is left out.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "convtune/worker/worker.pb.h"
#include "proto/base/mutex.h"
#include "proto/model/tuning/conditions.h"
#include "server/devices/device.h"

namespace convtune::devices {

// Thread-safe. db/README.md describes the file.
class SelfCheckCache {
 public:
  struct Entry {
    SelfCheck passed;         // known only if nothing was found wrong
    uint32_t lost_steps = 0;  // that a worker did not come back from
  };

  // All that a self-check depends on: the GPU, the driver, the libraries, this
  // program and what it checks.
  static std::string KeyOf(const DeviceSpec& device);

  // Reads the file; one that is not there or cannot be read is an empty cache.
  // `path` empty: nothing is kept beyond this process.
  explicit SelfCheckCache(std::string path);

  Entry Find(const std::string& key) const;
  // A failed self-check is forgotten, since another program on the GPU may have
  // been the reason: the next worker tries again.
  void Note(const std::string& key, const SelfCheck& check);
  // Keeps in memory alone that a worker died or hung in this step, so that a
  // restart of the daemon tries it again.
  void NoteLost(const std::string& key, uint32_t step);

 private:
  void Write() const REQUIRES(mutex_);

  const std::string path_;
  mutable Mutex mutex_;
  worker::v1::KeptSelfChecks kept_ GUARDED_BY(mutex_);             // the file
  std::map<std::string, uint32_t> lost_steps_ GUARDED_BY(mutex_);  // by key
};

}  // namespace convtune::devices

// An IndexLoader reads the tunings into the index, while look-ups are answered
// already.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "db/layered_tunings.h"
#include "proto/base/mutex.h"
#include "server/lookup/tuning_index.h"

namespace convtune::lookup {

// Thread-safe.
class IndexLoader {
 public:
  // The index outlives the loader.
  IndexLoader(db::LayeredTunings tunings, TuningIndex* index) : tunings_(tunings), index_(index) {}
  ~IndexLoader() { Stop(); }

  // Begins, and waits for at most `timeout`, so that a small database is whole
  // before anybody asks. Gives what reading failed with until then. Rows that
  // fail their checksum are logged and left out.
  absl::Status Start(absl::Duration timeout);
  // OK once the index is whole; what reading failed with; UNAVAILABLE if
  // neither was within `timeout`, or after Stop.
  absl::Status Await(absl::Duration timeout);
  // Ends the reading. Idempotent.
  void Stop();

 private:
  void Run();

  const db::LayeredTunings tunings_;
  TuningIndex* const index_;
  std::atomic<bool> stopping_{false};
  std::atomic<int64_t> loaded_{0};
  Mutex mutex_;
  CondVar changed_;
  bool done_ GUARDED_BY(mutex_) = false;
  absl::Status status_ GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace convtune::lookup

// A SnapshotLoader reads the snapshot file on a thread of its own, so that whoever wants it waits
// no longer than it may: a disk or a network file system can hang.
#pragma once

#include <functional>
#include <future>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "client/cpp/snapshot_answers.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"

namespace convtune::client {

// Thread-safe. Its destructor does not wait for a read that is under way.
class SnapshotLoader {
 public:
  using Outcome = absl::StatusOr<std::shared_ptr<const SnapshotAnswers>>;
  using Open = std::function<Outcome(const std::string& folder)>;

  // `folder` empty: $CONVTUNE_SNAPSHOT, else FindSnapshotFolder, asked at each read.
  explicit SnapshotLoader(std::string folder, Open open = SnapshotAnswers::Open)
      : folder_(std::move(folder)), open_(std::move(open)) {}
  SnapshotLoader(const SnapshotLoader&) = delete;
  SnapshotLoader& operator=(const SnapshotLoader&) = delete;

  // Reads the file that is there now, or waits for a read that another call has begun.
  // DEADLINE_EXCEEDED if it is not read by `deadline`, else the errors of SnapshotAnswers::Open.
  // Throws what `open` throws.
  Outcome Get(SteadyTime deadline);

 private:
  const std::string folder_;
  const Open open_;
  Mutex mutex_;
  std::shared_future<Outcome> read_ GUARDED_BY(mutex_);  // the last one; not valid before the first
};

}  // namespace convtune::client

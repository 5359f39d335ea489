// A SnapshotLoader reads the snapshot file on a thread of its own, so that whoever wants it waits
// no longer than it may: a disk or a network file system can hang.
#pragma once

#include <functional>
#include <future>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "client/cpp/snapshot_answers.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"

namespace convtune::client {

// Thread-safe. Its destructor does not wait for a read that is under way.
class SnapshotLoader {
 public:
  using Open =
      std::function<absl::StatusOr<std::unique_ptr<SnapshotAnswers>>(const std::string& folder)>;
  using Outcome = absl::StatusOr<std::shared_ptr<const SnapshotAnswers>>;

  // `folder` empty: $CONVTUNE_SNAPSHOT, else FindSnapshotFolder, asked at each read.
  explicit SnapshotLoader(std::string folder, Open open = SnapshotAnswers::Open);
  SnapshotLoader(const SnapshotLoader&) = delete;
  SnapshotLoader& operator=(const SnapshotLoader&) = delete;

  // The file that is there now, or, where a read is under way, was there at its begin.
  // DEADLINE_EXCEEDED if it is not read by `deadline`, else the errors of SnapshotAnswers::Open.
  Outcome Get(SteadyTime deadline);

 private:
  struct Reader;

  // Shared with the thread, which may be in a read that never ends.
  const std::shared_ptr<Reader> reader_;
  Mutex mutex_;
  std::shared_future<Outcome> read_ GUARDED_BY(mutex_);  // the last one; not valid before the first
};

}  // namespace convtune::client

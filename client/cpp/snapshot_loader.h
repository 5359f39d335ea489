// Reads the snapshot file on a thread of its own, so that whoever wants it waits
// no longer than it may: a disk or a network file system can hang.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "client/cpp/snapshot_answers.h"
#include "proto/base/clock.h"

namespace convtune::client {

// Thread-safe. Its thread begins with the first read and ends after the
// destructor, which does not wait for it.
class SnapshotLoader {
 public:
  using Open =
      std::function<absl::StatusOr<std::unique_ptr<SnapshotAnswers>>(const std::string& folder)>;

  // `folder` empty: $CONVTUNE_SNAPSHOT, else where a daemon has its own (see
  // ClientSnapshotFolders), looked for at each read.
  explicit SnapshotLoader(std::string folder, Open open = SnapshotAnswers::Open);
  ~SnapshotLoader();
  SnapshotLoader(const SnapshotLoader&) = delete;
  SnapshotLoader& operator=(const SnapshotLoader&) = delete;

  // Has the file read, so that who may want it soon waits less. Returns the number of the read.
  int64_t Begin();
  // The file that is there now; DEADLINE_EXCEEDED if it is not read by `deadline`,
  // else the errors of SnapshotAnswers::Open.
  absl::StatusOr<std::shared_ptr<const SnapshotAnswers>> Get(SteadyTime deadline);

 private:
  struct State;
  const std::shared_ptr<State> state_;
};

}  // namespace convtune::client

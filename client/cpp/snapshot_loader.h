// Reads the snapshot file on a thread of its own, so that whoever wants it waits
// no longer than it may: a disk or a network file system can hang.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/cpp/snapshot_answers.h"
#include "proto/base/clock.h"

namespace convtune::client {

// Thread-safe. Its thread begins with the first Read and ends after the
// destructor, which does not wait for it.
class SnapshotLoader {
 public:
  struct State;

  // One caller's wish for the file as it is from now on. Not thread-safe. Must
  // not outlive its loader.
  class Read {
   public:
    Read(Read&& other) noexcept;
    Read& operator=(Read&&) = delete;
    ~Read();  // what was not begun is not read

    // The file that is there now, read at once if it was not begun;
    // DEADLINE_EXCEEDED if it is not there by `deadline`, else the errors of
    // SnapshotAnswers::Open.
    absl::StatusOr<std::shared_ptr<const SnapshotAnswers>> Wait(SteadyTime deadline);

   private:
    friend class SnapshotLoader;
    Read(std::shared_ptr<State> state, int64_t begun);
    std::shared_ptr<State> state_;
    int64_t begun_;  // reads that others had begun before this one was wished for
  };

  using Open =
      std::function<absl::StatusOr<std::unique_ptr<SnapshotAnswers>>(const std::string& folder)>;

  // `folder` empty: $CONVTUNE_SNAPSHOT, else where a daemon has its own (see
  // ClientSnapshotFolders), looked for at each read.
  explicit SnapshotLoader(std::string folder, Open open = SnapshotAnswers::Open);
  ~SnapshotLoader();
  SnapshotLoader(const SnapshotLoader&) = delete;
  SnapshotLoader& operator=(const SnapshotLoader&) = delete;

  // The file is read at `when` unless the result is gone by then.
  Read Begin(SteadyTime when);

 private:
  std::shared_ptr<State> state_;
};

}  // namespace convtune::client

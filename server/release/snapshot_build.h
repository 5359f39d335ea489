// WriteSnapshot writes what is served to the snapshot file.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "db/snapshot/snapshot_writer.h"
#include "proto/model/release/release.h"
#include "server/lookup/tuning_index.h"
#include "server/release/releases.h"

namespace convtune::release {

struct SnapshotContents {
  Releases::Served served;
  int64_t choice_count = 0;                  // with those carried over
  snapshot::SnapshotWriter::KeySet carried;  // as in the file that was there before
};

// Writes `path` (see db/snapshot). A pin of `pins` is offered before what the
// release says, unless it is banned; what `quarantined` gives for a problem is never offered. The
// environments of `current` are in the file even without a choice. A problem
// that the format cannot hold is logged and left out. Errors are the store's
// and the file's.
struct SnapshotInput {
  const Releases* releases = nullptr;
  const lookup::TuningIndex* index = nullptr;  // for what is known of pinned candidates
  std::vector<Environment> current;
  std::vector<Pin> pins;
  std::function<std::map<CandidateId, QuarantineEntry>(const TuningKey&)> quarantined;
  // A problem of these whose choice the database has lost keeps that of the file
  // that is replaced; nullopt: any problem does. So it is, too, where a damaged
  // choice is found. Pins are not kept: one that was deleted would return.
  std::optional<snapshot::SnapshotWriter::KeySet> carry_over = snapshot::SnapshotWriter::KeySet();
  absl::Time now;
};
absl::StatusOr<SnapshotContents> WriteSnapshot(const SnapshotInput& input, const std::string& path);

}  // namespace convtune::release

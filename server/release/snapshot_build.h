// WriteSnapshot writes what is served to the snapshot file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "db/snapshot/snapshot_writer.h"
#include "server/release/publisher.h"
#include "server/release/releases.h"

namespace convtune::release {

struct SnapshotContents {
  Releases::Served served;
  int64_t choice_count = 0;                        // with those carried over
  snapshot::SnapshotWriter::KeySet carried;        // as in the file that was there before
  absl::Time pin_expiry = absl::InfiniteFuture();  // when the first of its pins expires
};

// Writes what `releases` serve to `path` (see db/snapshot). A pin is offered before what the
// release says, unless it is banned; a quarantined candidate is never offered. The environments of
// `options.current` are in the file even without a choice. A problem that the format cannot hold is
// logged and left out. Errors are the store's and the file's.
// A problem of `carry_over` whose choice the database has lost keeps that of the file that is
// replaced; nullopt: any problem does. So it is, too, where a damaged choice is found. Pins are not
// kept: one that was deleted would return.
absl::StatusOr<SnapshotContents> WriteSnapshot(
    const Publisher::Options& options, const Releases& releases,
    const std::optional<snapshot::SnapshotWriter::KeySet>& carry_over, absl::Time now,
    const std::string& path);

}  // namespace convtune::release

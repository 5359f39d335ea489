// A SnapshotPiece is a part of the published snapshot file, for machines that do
// not see its folder.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace convtune::release {

struct SnapshotPiece {
  std::string bytes;     // at most 1 MiB; empty at the end
  uint64_t version = 0;  // differs where the file differs
  int64_t size_bytes = 0;
};

// Reads the file of that folder from `offset` on. `version` is what the caller
// has a part of, or at offset 0 the whole of; 0: nothing. Where the file is still
// the one that the caller has as a whole, `bytes` is empty. NOT_FOUND: there is no
// file. ABORTED: it is no longer the one that the caller has a part of. INTERNAL:
// it cannot be read. Thread-safe.
absl::StatusOr<SnapshotPiece> ReadSnapshotPiece(const std::string& folder, int64_t offset,
                                                uint64_t version);

}  // namespace convtune::release

// ReadSnapshotPiece reads a part of the published snapshot file, for machines that do
// not see its folder.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "convtune/v1/release_service.pb.h"

namespace convtune::release {

// The answer of the file in that folder. NOT_FOUND and ABORTED as ReleaseService says;
// INTERNAL: the file cannot be read. Thread-safe.
absl::StatusOr<v1::ReadSnapshotResponse> ReadSnapshotPiece(const std::string& folder,
                                                           const v1::ReadSnapshotRequest& request);

}  // namespace convtune::release

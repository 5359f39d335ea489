// Conversions between the worker protocol's messages and the backend's values.
#pragma once

#include <optional>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "convtune/worker/worker.pb.h"
#include "server/worker/backend.h"

namespace convtune::worker {

// nullopt if a number is none that this worker knows.
std::optional<ListingDepth> DepthOf(worker::v1::Listing listing);
std::optional<RunMode> ModeOf(const worker::v1::Measure& request);

worker::v1::Prepared ToProto(int index, const absl::StatusOr<PreparedCandidate>& result,
                             absl::Duration build_time);
worker::v1::Checked ToProto(int index, const absl::StatusOr<CheckedRun>& run);
worker::v1::Sample ToProto(int index, int round, const absl::StatusOr<TimedRun>& run);

}  // namespace convtune::worker

// Between the worker protocol's messages and the backend's values.
#pragma once

#include <optional>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "convtune/worker/worker.pb.h"
#include "server/worker/backend.h"

namespace convtune {

// nullopt if a number is none that this worker knows.
std::optional<ListingDepth> DepthOf(worker::Listing listing);
std::optional<RunMode> ModeOf(const worker::Measure& request);

worker::ListedCandidate ToProto(const Candidate& candidate, int index);
worker::Prepared ToProto(int index, const absl::StatusOr<PreparedCandidate>& result,
                         absl::Duration build_time);
worker::Checked ToProto(int index, const absl::StatusOr<CheckedRun>& run);
worker::Sample ToProto(int index, int round, const absl::StatusOr<TimedRun>& run);
worker::Conditions ToProto(const ConditionsLook& look);
worker::SelfCheck ToProto(const SelfCheck& check);
SelfCheck FromProto(const worker::SelfCheck& check);

}  // namespace convtune

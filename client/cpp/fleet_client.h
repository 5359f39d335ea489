// A FleetClient exchanges tunings and releases between a daemon and
// convtune-fleet.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "client/cpp/client.h"
#include "convtune/v1/fleet_service.pb.h"

namespace convtune {

// As Client: blocking calls, thread-safe, the same errors and the options'
// timeout for each call.
class FleetClient {
 public:
  // Does not connect yet. INVALID_ARGUMENT as OpenChannel.
  static absl::StatusOr<std::unique_ptr<FleetClient>> Create(const Client::Options& options);
  virtual ~FleetClient() = default;

  virtual absl::StatusOr<v1::FleetState> GetFleetState() = 0;
  virtual absl::StatusOr<v1::ReadOutboxResponse> ReadOutbox(
      const v1::ReadOutboxRequest& request) = 0;
  virtual absl::StatusOr<v1::AckOutboxResponse> AckOutbox(const v1::AckOutboxRequest& request) = 0;
  virtual absl::StatusOr<v1::RequeueOutboxResponse> RequeueOutbox() = 0;
  virtual absl::StatusOr<v1::ApplyTuningsResponse> ApplyTunings(
      const v1::ApplyTuningsRequest& request) = 0;
  virtual absl::StatusOr<v1::FollowReleaseResponse> FollowRelease(
      const v1::FollowReleaseRequest& request) = 0;
};

}  // namespace convtune

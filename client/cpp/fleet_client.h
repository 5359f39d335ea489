// A FleetClient exchanges tunings and releases between a daemon and
// convtune-fleet. Thread-safe.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "client/cpp/connection.h"
#include "convtune/v1/fleet_service.pb.h"

namespace convtune::client {

class FleetClient : public Connection {
 public:
  static absl::StatusOr<std::unique_ptr<FleetClient>> Create(const Options& options) {
    return Open<FleetClient>(options);
  }

  // `observer`: not for an agent, whose silence the daemon measures.
  absl::StatusOr<v1::FleetState> GetFleetState(bool observer = false) {
    v1::GetFleetStateRequest request;
    request.set_observer(observer);
    return Call<v1::FleetState>("FleetService/GetFleetState", request);
  }
  absl::StatusOr<v1::ReadOutboxResponse> ReadOutbox(const v1::ReadOutboxRequest& request) {
    return Call<v1::ReadOutboxResponse>("FleetService/ReadOutbox", request);
  }
  absl::StatusOr<v1::AckOutboxResponse> AckOutbox(const v1::AckOutboxRequest& request) {
    return Call<v1::AckOutboxResponse>("FleetService/AckOutbox", request);
  }
  absl::StatusOr<v1::RequeueOutboxResponse> RequeueOutbox(const v1::RequeueOutboxRequest& request) {
    return Call<v1::RequeueOutboxResponse>("FleetService/RequeueOutbox", request);
  }
  absl::StatusOr<v1::ApplyTuningsResponse> ApplyTunings(const v1::ApplyTuningsRequest& request) {
    return Call<v1::ApplyTuningsResponse>("FleetService/ApplyTunings", request);
  }
  absl::StatusOr<v1::FollowReleaseResponse> FollowRelease(const v1::FollowReleaseRequest& request) {
    return Call<v1::FollowReleaseResponse>("FleetService/FollowRelease", request);
  }
};

}  // namespace convtune::client

#include "client/cpp/fleet_client.h"

#include <utility>

#include "client/cpp/rpc_call.h"
#include "convtune/v1/fleet_service.grpc.pb.h"

namespace convtune {
namespace {

class GrpcFleetClient final : public FleetClient {
  using Stub = v1::FleetService::Stub;

 public:
  GrpcFleetClient(const Client::Options& options, std::shared_ptr<grpc::Channel> channel)
      : timeout_(options.timeout),
        channel_(std::move(channel)),
        stub_(v1::FleetService::NewStub(channel_)) {}

  absl::StatusOr<v1::FleetState> GetFleetState() override {
    return UnaryCall(*channel_, *stub_, &Stub::GetFleetState, {}, timeout_);
  }
  absl::StatusOr<v1::ReadOutboxResponse> ReadOutbox(const v1::ReadOutboxRequest& request) override {
    return UnaryCall(*channel_, *stub_, &Stub::ReadOutbox, request, timeout_);
  }
  absl::StatusOr<v1::AckOutboxResponse> AckOutbox(const v1::AckOutboxRequest& request) override {
    return UnaryCall(*channel_, *stub_, &Stub::AckOutbox, request, timeout_);
  }
  absl::StatusOr<v1::RequeueOutboxResponse> RequeueOutbox() override {
    return UnaryCall(*channel_, *stub_, &Stub::RequeueOutbox, {}, timeout_);
  }
  absl::StatusOr<v1::ApplyTuningsResponse> ApplyTunings(
      const v1::ApplyTuningsRequest& request) override {
    return UnaryCall(*channel_, *stub_, &Stub::ApplyTunings, request, timeout_);
  }
  absl::StatusOr<v1::FollowReleaseResponse> FollowRelease(
      const v1::FollowReleaseRequest& request) override {
    return UnaryCall(*channel_, *stub_, &Stub::FollowRelease, request, timeout_);
  }

 private:
  const absl::Duration timeout_;
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<Stub> stub_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<FleetClient>> FleetClient::Create(const Client::Options& options) {
  ASSIGN_OR_RETURN(auto channel, OpenChannel(options.address, options.tls));
  return std::make_unique<GrpcFleetClient>(options, std::move(channel));
}

}  // namespace convtune

#include "client/cpp/release_client.h"

#include <utility>

#include "client/cpp/rpc_call.h"
#include "convtune/v1/release_service.grpc.pb.h"

namespace convtune {
namespace {

class GrpcReleaseClient final : public ReleaseClient {
  using Stub = v1::ReleaseService::Stub;

 public:
  GrpcReleaseClient(const Client::Options& options, std::shared_ptr<grpc::Channel> channel)
      : timeout_(options.timeout),
        channel_(std::move(channel)),
        stub_(v1::ReleaseService::NewStub(channel_)) {}

  absl::StatusOr<v1::ListReleasesResponse> ListReleases() override {
    return UnaryCall(*channel_, *stub_, &Stub::ListReleases, {}, timeout_);
  }
  absl::StatusOr<v1::DiffReleasesResponse> DiffReleases(
      const v1::DiffReleasesRequest& request) override {
    return UnaryCall(*channel_, *stub_, &Stub::DiffReleases, request, timeout_);
  }
  absl::StatusOr<v1::Release> PromoteRelease(const v1::PromoteReleaseRequest& request) override {
    return UnaryCall(*channel_, *stub_, &Stub::PromoteRelease, request, timeout_);
  }
  absl::StatusOr<v1::Release> RollBackRelease(const v1::RollBackReleaseRequest& request) override {
    return UnaryCall(*channel_, *stub_, &Stub::RollBackRelease, request, timeout_);
  }
  absl::StatusOr<v1::ListWantedResponse> ListWanted(const v1::ListWantedRequest& request) override {
    return UnaryCall(*channel_, *stub_, &Stub::ListWanted, request, timeout_);
  }
  absl::StatusOr<v1::Publication> GetPublication() override {
    return UnaryCall(*channel_, *stub_, &Stub::GetPublication, {}, timeout_);
  }

 private:
  const absl::Duration timeout_;
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<Stub> stub_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ReleaseClient>> ReleaseClient::Create(
    const Client::Options& options) {
  ASSIGN_OR_RETURN(auto channel, OpenChannel(options.address, options.tls));
  return std::make_unique<GrpcReleaseClient>(options, std::move(channel));
}

}  // namespace convtune

#include <memory>
#include <string>
#include <utility>

#include "proto/base/status_macros.h"
#include "server/rpc/messages/proto_converter.h"
#include "server/rpc/services/call.h"
#include "server/rpc/services/services.h"

namespace convtune::rpc::services {
namespace {

constexpr size_t kMaxReleaseCalls = 64;

class ReleaseService final : public RawService {
 public:
  explicit ReleaseService(const ServiceOptions& options)
      : RawService(kReleaseServiceName), releases_(options.releases), disk_(kMaxReleaseCalls) {
    Unary<v1::ListReleasesRequest>(
        "ListReleases", &disk_,
        [this](const v1::ListReleasesRequest& request) -> absl::StatusOr<v1::ListReleasesResponse> {
          v1::ListReleasesResponse reply;
          RETURN_IF_ERROR(
              messages::Fill(releases_->ListReleases(),
                             messages::PageOf(request.page_size(), request.page_token()), &reply));
          return reply;
        });

    Unary<v1::DiffReleasesRequest>(
        "DiffReleases", &disk_,
        [this](const v1::DiffReleasesRequest& request) -> absl::StatusOr<v1::DiffReleasesResponse> {
          ASSIGN_OR_RETURN(const TuningKey after, messages::ReadKeyToken(request.page_token()));
          ASSIGN_OR_RETURN(
              const release::ReleaseDiff diff,
              releases_->DiffReleases(request.from(), request.to(), request.environment(), after,
                                      messages::RowsOf(request.max_changes())));
          return messages::ToProto(diff);
        });

    const auto served = [this](const auto&) {
      const v1::Publication now = releases_->Status();
      v1::Publication before;
      before.set_release(now.release());
      before.set_canary_permille(now.canary_permille());
      return std::optional(before);
    };
    Unary<v1::PromoteReleaseRequest>(
        "PromoteRelease", &disk_,
        [this](const v1::PromoteReleaseRequest& request) -> absl::StatusOr<v1::Release> {
          ASSIGN_OR_RETURN(const Release release,
                           releases_->PromoteRelease(request.author(), request.reason(),
                                                     request.canary_permille()));
          return messages::ToProto(release);
        },
        served);

    Unary<v1::RollBackReleaseRequest>(
        "RollBackRelease", &disk_,
        [this](const v1::RollBackReleaseRequest& request) -> absl::StatusOr<v1::Release> {
          ASSIGN_OR_RETURN(
              const Release release,
              releases_->RollBackRelease(request.author(), request.reason(), request.release()));
          return messages::ToProto(release);
        },
        served);

    Unary<v1::ListWantedRequest>(
        "ListWanted", &disk_,
        [this](const v1::ListWantedRequest& request) -> absl::StatusOr<v1::ListWantedResponse> {
          ASSIGN_OR_RETURN(const std::vector<WantedProblem> wanted,
                           releases_->ListWanted(request.environment()));
          v1::ListWantedResponse reply;
          RETURN_IF_ERROR(messages::Fill(
              wanted, {messages::RowsOf(request.max_problems()), request.page_token()}, &reply));
          return reply;
        });

    Unary<v1::GetPublicationRequest>(
        "GetPublication", &disk_,
        [this](const v1::GetPublicationRequest&) -> absl::StatusOr<v1::Publication> {
          return releases_->Status();
        });

    Unary<v1::ReadSnapshotRequest>(
        "ReadSnapshot", &disk_,
        [this](const v1::ReadSnapshotRequest& request) -> absl::StatusOr<v1::ReadSnapshotResponse> {
          return release::ReadSnapshotPiece(releases_->Status().folder(), request);
        });
  }

 private:
  release::ReleaseManager* const releases_;
  WorkQueue disk_;
};

}  // namespace

std::unique_ptr<grpc::Service> NewReleaseService(const ServiceOptions& options) {
  return std::make_unique<ReleaseService>(options);
}

}  // namespace convtune::rpc::services

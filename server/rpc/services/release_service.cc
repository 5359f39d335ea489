#include <memory>
#include <string>
#include <utility>

#include "server/release/snapshot_piece.h"
#include "server/rpc/messages/release_converter.h"
#include "server/rpc/services/call.h"
#include "server/rpc/services/services.h"

namespace convtune::rpc::services {
namespace {

constexpr size_t kMaxReleaseCalls = 64;

class ReleaseService final : public RawService {
 public:
  explicit ReleaseService(release::ReleaseManager* releases)
      : RawService(kReleaseServiceName), releases_(releases), disk_(kMaxReleaseCalls) {
    Unary<v1::ListReleasesRequest, v1::ListReleasesResponse>(
        "ListReleases", &disk_,
        [this](const messages::PageArgs& page, v1::ListReleasesResponse* reply) {
          return messages::ToGrpcStatus(messages::Fill(releases_->ListReleases(), page, reply));
        });

    Unary<v1::DiffReleasesRequest, v1::DiffReleasesResponse>(
        "DiffReleases", &disk_,
        [this](const messages::DiffArgs& args, v1::DiffReleasesResponse* reply) {
          const absl::StatusOr<TuningKey> after = messages::ReadDiffToken(args.page_token);
          if (!after.ok()) return messages::ToGrpcStatus(after.status());
          const absl::StatusOr<release::ReleaseDiff> diff = releases_->DiffReleases(
              args.from, args.to, args.environment, *after, args.max_changes);
          if (diff.ok()) *reply = messages::ToProto(*diff);
          return messages::ToGrpcStatus(diff.status());
        });

    Unary<v1::PromoteReleaseRequest, v1::Release>(
        "PromoteRelease", &disk_,
        [this](const v1::PromoteReleaseRequest& request, v1::Release* reply) {
          return Fill(releases_->PromoteRelease(request.author(), request.reason(),
                                                request.canary_permille()),
                      reply);
        });

    Unary<v1::RollBackReleaseRequest, v1::Release>(
        "RollBackRelease", &disk_,
        [this](const v1::RollBackReleaseRequest& request, v1::Release* reply) {
          return Fill(
              releases_->RollBackRelease(request.author(), request.reason(), request.release()),
              reply);
        });

    Unary<v1::ListWantedRequest, v1::ListWantedResponse>(
        "ListWanted", &disk_,
        [this](const messages::EnvironmentPageArgs& args, v1::ListWantedResponse* reply) {
          const auto wanted = releases_->ListWanted(args.environment);
          if (!wanted.ok()) return messages::ToGrpcStatus(wanted.status());
          const absl::Status filled = messages::Fill(
              *wanted, args.page,
              [this](const std::string& text) { return releases_->HasDevice(text); }, reply);
          return messages::ToGrpcStatus(filled);
        });

    Unary<v1::GetPublicationRequest, v1::Publication>(
        "GetPublication", &disk_, [this](const v1::GetPublicationRequest&, v1::Publication* reply) {
          *reply = releases_->Status();
          return grpc::Status::OK;
        });

    Unary<v1::ReadSnapshotRequest, v1::ReadSnapshotResponse>(
        "ReadSnapshot", &disk_,
        [this](const v1::ReadSnapshotRequest& request, v1::ReadSnapshotResponse* reply) {
          absl::StatusOr<release::SnapshotPiece> piece = release::ReadSnapshotPiece(
              releases_->Status().folder(), request.offset(), request.version());
          if (piece.ok()) {
            reply->set_chunk(std::move(piece->bytes));
            reply->set_version(piece->version);
            reply->set_size_bytes(piece->size_bytes);
          }
          return messages::ToGrpcStatus(piece.status());
        });
  }

 private:
  static grpc::Status Fill(const absl::StatusOr<Release>& release, v1::Release* reply) {
    if (release.ok()) *reply = messages::ToProto(*release);
    return messages::ToGrpcStatus(release.status());
  }

  release::ReleaseManager* const releases_;
  WorkQueue disk_;
};

}  // namespace

std::unique_ptr<grpc::Service> NewReleaseService(release::ReleaseManager* releases) {
  return std::make_unique<ReleaseService>(releases);
}

}  // namespace convtune::rpc::services

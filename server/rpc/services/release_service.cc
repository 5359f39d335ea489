#include <memory>
#include <optional>
#include <string>
#include <vector>

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
    Unary<v1::ListReleasesRequest, v1::ListReleasesResponse>(&disk_, [this](const auto& request,
                                                                            auto* reply) {
      *reply = releases_->ListReleases();
      const std::vector<v1::Release> all(reply->releases().begin(), reply->releases().end());
      reply->clear_releases();
      const auto key = [](const v1::Release& release) { return std::to_string(release.number()); };
      return messages::AddPage(request, all, key, reply->mutable_releases(), reply);
    });

    Unary<v1::DiffReleasesRequest, v1::DiffReleasesResponse>(
        &disk_, [this](const auto& request, auto* reply) {
          ASSIGN_OR_RETURN(
              const release::ReleaseDiff diff,
              releases_->DiffReleases(request.from(), request.to(), request.environment()));
          reply->set_from(diff.from);
          reply->set_to(request.to());
          reply->set_change_count(static_cast<int64_t>(diff.changes.size()));
          const auto key = [](const release::ChoiceChange& row) {
            return messages::KeyText(row.after.key);
          };
          return messages::AddPage(request, diff.changes, key, reply->mutable_changes(), reply);
        });

    const auto served = [this](const auto&) {
      const v1::Publication now = releases_->Status();
      v1::Publication before;
      before.set_release(now.release());
      before.set_canary_permille(now.canary_permille());
      return std::optional(before);
    };
    Unary<v1::PromoteReleaseRequest, v1::Release>(
        &disk_,
        [this](const auto& request) {
          return releases_->PromoteRelease(request.author(), request.reason(),
                                           request.canary_permille());
        },
        served);

    Unary<v1::RollBackReleaseRequest, v1::Release>(
        &disk_,
        [this](const auto& request) {
          return releases_->RollBackRelease(request.author(), request.reason(), request.release());
        },
        served);

    Unary<v1::ListWantedRequest, v1::ListWantedResponse>(
        &disk_, [this](const auto& request, auto* reply) {
          ASSIGN_OR_RETURN(const std::vector<v1::WantedProblem> wanted,
                           releases_->ListWanted(request.environment()));
          reply->set_wanted_count(static_cast<int64_t>(wanted.size()));
          const auto key = [](const v1::WantedProblem& row) {
            return row.environment_text() + " " + row.problem_text();
          };
          return messages::AddPage(request, wanted, key, reply->mutable_wanted(), reply);
        });

    Unary<v1::GetPublicationRequest, v1::Publication>(
        &disk_, [this](const auto&) { return releases_->Status(); });

    Unary<v1::ReadSnapshotRequest, v1::ReadSnapshotResponse>(&disk_, [this](const auto& request) {
      return release::ReadSnapshotPiece(releases_->Status().folder(), request);
    });
  }

 private:
  release::Publisher* const releases_;
  WorkQueue disk_;
};

}  // namespace

std::unique_ptr<grpc::Service> NewReleaseService(const ServiceOptions& options) {
  return std::make_unique<ReleaseService>(options);
}

}  // namespace convtune::rpc::services

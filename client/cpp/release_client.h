// A ReleaseClient manages a daemon's releases.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "client/cpp/connection.h"
#include "convtune/v1/release_service.pb.h"

namespace convtune::client {

class ReleaseClient : public Connection {
 public:
  static absl::StatusOr<std::unique_ptr<ReleaseClient>> Create(const Options& options) {
    return Open<ReleaseClient>(options);
  }

  // The releases of all pages.
  absl::StatusOr<v1::ListReleasesResponse> ListReleases() {
    return CallPages<v1::ListReleasesResponse>("ReleaseService/ListReleases",
                                               v1::ListReleasesRequest(),
                                               [](auto* page) { return page->mutable_releases(); });
  }
  // max_changes of them, of as many pages as that takes.
  absl::StatusOr<v1::DiffReleasesResponse> DiffReleases(const v1::DiffReleasesRequest& request) {
    return CallPages<v1::DiffReleasesResponse>(
        "ReleaseService/DiffReleases", request, [](auto* page) { return page->mutable_changes(); },
        request.max_changes());
  }
  absl::StatusOr<v1::Release> PromoteRelease(const v1::PromoteReleaseRequest& request) {
    return Call<v1::Release>("ReleaseService/PromoteRelease", request);
  }
  absl::StatusOr<v1::Release> RollBackRelease(const v1::RollBackReleaseRequest& request) {
    return Call<v1::Release>("ReleaseService/RollBackRelease", request);
  }
  // max_problems of them, of as many pages as that takes.
  absl::StatusOr<v1::ListWantedResponse> ListWanted(const v1::ListWantedRequest& request) {
    return CallPages<v1::ListWantedResponse>(
        "ReleaseService/ListWanted", request, [](auto* page) { return page->mutable_wanted(); },
        request.max_problems());
  }
  absl::StatusOr<v1::Publication> GetPublication() {
    return Call<v1::Publication>("ReleaseService/GetPublication", v1::GetPublicationRequest());
  }
  absl::StatusOr<v1::ReadSnapshotResponse> ReadSnapshot(const v1::ReadSnapshotRequest& request) {
    return Call<v1::ReadSnapshotResponse>("ReleaseService/ReadSnapshot", request);
  }
};

}  // namespace convtune::client

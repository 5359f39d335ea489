// A ReleaseClient manages a daemon's releases.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "client/cpp/client.h"
#include "convtune/v1/release_service.pb.h"

namespace convtune {

// As Client: blocking calls, thread-safe, the same errors and the options'
// timeout for each call.
class ReleaseClient {
 public:
  // Does not connect yet. INVALID_ARGUMENT as OpenChannel.
  static absl::StatusOr<std::unique_ptr<ReleaseClient>> Create(const Client::Options& options);
  virtual ~ReleaseClient() = default;

  virtual absl::StatusOr<v1::ListReleasesResponse> ListReleases() = 0;
  virtual absl::StatusOr<v1::DiffReleasesResponse> DiffReleases(
      const v1::DiffReleasesRequest& request) = 0;
  virtual absl::StatusOr<v1::Release> PromoteRelease(const v1::PromoteReleaseRequest& request) = 0;
  virtual absl::StatusOr<v1::Release> RollBackRelease(
      const v1::RollBackReleaseRequest& request) = 0;
  virtual absl::StatusOr<v1::ListWantedResponse> ListWanted(
      const v1::ListWantedRequest& request) = 0;
  virtual absl::StatusOr<v1::Publication> GetPublication() = 0;
};

}  // namespace convtune

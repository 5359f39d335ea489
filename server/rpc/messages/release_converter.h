// Reads and checks requests of ReleaseService, and fills its replies. Pure functions.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "convtune/v1/release_service.pb.h"
#include "server/release/release_manager.h"
#include "server/rpc/messages/page.h"

namespace convtune::rpc::messages {

v1::Release ToProto(const Release& release);
// A page of them. INVALID_ARGUMENT: the token is none.
absl::Status Fill(const release::ReleaseList& list, const PageArgs& page,
                  v1::ListReleasesResponse* out);
// `has_device` says whether a device has the environment of a key text.
absl::Status Fill(const std::vector<WantedProblem>& wanted, const PageArgs& page,
                  const std::function<bool(const std::string&)>& has_device,
                  v1::ListWantedResponse* out);
v1::DiffReleasesResponse ToProto(const release::ReleaseDiff& diff);

}  // namespace convtune::rpc::messages

// Reads and checks requests of ReleaseService, and fills its replies. Pure functions.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "convtune/v1/release_service.pb.h"
#include "server/release/release_manager.h"

namespace convtune::rpc::messages {

v1::Release ToProto(const Release& release);
v1::ListReleasesResponse ToProto(const release::ReleaseList& list);
v1::DiffReleasesResponse ToProto(const release::ReleaseDiff& diff);
// The first `most` of them. `has_device` says whether a device has the environment of a key text.
v1::ListWantedResponse ToProto(const std::vector<WantedProblem>& wanted, size_t most,
                               const std::function<bool(const std::string&)>& has_device);
v1::Publication ToProto(const release::PublicationStatus& status);

}  // namespace convtune::rpc::messages

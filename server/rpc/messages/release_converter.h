// As proto_converter.h, of releases and what belongs to them. Pure functions.
#pragma once

#include "convtune/v1/release_service.pb.h"
#include "server/tuner/release_manager.h"

namespace convtune::rpc::messages {

v1::Release ToProto(const Release& release);
v1::ListReleasesResponse ToProto(const ReleaseList& list);
v1::DiffReleasesResponse ToProto(const ReleaseDiff& diff);
// The first `most` of them.
v1::ListWantedResponse ToProto(const std::vector<WantedProblem>& wanted, size_t most);
v1::Publication ToProto(const PublicationStatus& status);

}  // namespace convtune::rpc::messages

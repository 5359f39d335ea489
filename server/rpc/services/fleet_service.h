// The FleetService, which convtune-fleet calls.
#pragma once

#include <memory>

#include "db/outbox_store.h"
#include "server/release/release_manager.h"
#include "server/tuner/tuner.h"

namespace grpc {
class Service;
}  // namespace grpc

namespace convtune::rpc::services {

// Full name, under which its health is asked.
inline constexpr char kFleetServiceName[] = "convtune.v1.FleetService";

struct FleetServiceOptions {
  tuner::Tuner* tuner = nullptr;
  db::OutboxStore* outbox = nullptr;
  release::ReleaseManager* releases = nullptr;  // may be nullptr: nothing is served to programs
};

// Thin handlers over the outbox and the tuner, on one thread. Everything in the
// options outlives the service.
std::unique_ptr<grpc::Service> NewFleetService(FleetServiceOptions options);

}  // namespace convtune::rpc::services

// The gRPC services, without their generated classes, which are slow to
// compile.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "db/outbox_store.h"
#include "db/store/backups.h"
#include "db/tuning_store.h"
#include "proto/base/clock.h"
#include "server/release/release_manager.h"
#include "server/tuner/tuner.h"

namespace grpc {
class Service;
}  // namespace grpc

namespace convtune::rpc::services {

// Full names, under which their health is asked.
inline constexpr char kTuningServiceName[] = "convtune.v1.TuningService";
inline constexpr char kReleaseServiceName[] = "convtune.v1.ReleaseService";
inline constexpr char kMaintenanceServiceName[] = "convtune.v1.MaintenanceService";
inline constexpr char kBundleServiceName[] = "convtune.v1.BundleService";
inline constexpr char kFleetServiceName[] = "convtune.v1.FleetService";

struct BundleOptions {
  tuner::Tuner* tuner = nullptr;
  const Clock* clock = nullptr;
  std::string state_dir;
  // Public keys (32 bytes each), one of which must have signed a bundle; empty:
  // it need not be signed.
  std::vector<std::string> trusted_keys;
};

// The facts about the metrics endpoint that GetServerInfo returns.
struct MetricsInfo {
  bool built = false;
  std::string url;  // empty: off
};

struct MaintenanceOptions {
  tuner::Tuner* tuner = nullptr;
  db::TuningStore* store = nullptr;
  const Clock* clock = nullptr;
  std::string state_dir;
  MetricsInfo metrics;
  db::store::Backups* backups = nullptr;
};

struct FleetServiceOptions {
  tuner::Tuner* tuner = nullptr;
  db::OutboxStore* outbox = nullptr;
  release::ReleaseManager* releases = nullptr;  // may be nullptr: nothing is served to programs
};

// Thin handlers over the tuner. Its look-ups and watches take no thread; what
// reads or writes the disk shares one. `tuner` outlives the service. `left_out`: the devices that
// cannot be used, each with the reason.
std::unique_ptr<grpc::Service> NewTuningService(tuner::Tuner* tuner,
                                                std::vector<std::string> left_out);

// Thin handlers over the store, on one thread. Everything in the options
// outlives the service, whose making is the daemon's start time.
std::unique_ptr<grpc::Service> NewMaintenanceService(MaintenanceOptions options);

// Thin handlers over the releases, on one thread; `releases` outlives the
// service.
std::unique_ptr<grpc::Service> NewReleaseService(release::ReleaseManager* releases);

// Bundles in and out, on two threads. Everything in the options outlives the
// service.
std::unique_ptr<grpc::Service> NewBundleService(BundleOptions options);

// What convtune-fleet calls: thin handlers over the outbox and the tuner, on one thread.
// Everything in the options outlives the service.
std::unique_ptr<grpc::Service> NewFleetService(FleetServiceOptions options);

}  // namespace convtune::rpc::services

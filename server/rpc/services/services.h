// The gRPC services, without their generated classes, which are slow to
// compile.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "db/store/backups.h"
#include "db/store/sqlite_store.h"
#include "proto/base/clock.h"
#include "server/release/publisher.h"
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

// What the services work on. The pointers outlive them.
struct ServiceOptions {
  tuner::Tuner* tuner = nullptr;
  db::TuningStore* store = nullptr;
  db::store::SqliteStore* outbox = nullptr;  // without it there is no FleetService
  release::Publisher* releases = nullptr;    // without it there is no ReleaseService
  const Clock* clock = nullptr;
  db::store::Backups* backups = nullptr;
  std::string state_dir = {};  // as GetServerInfo reports it; imports wait there
  // Public keys (32 bytes each), one of which must have signed an imported bundle; empty: it need
  // not be signed.
  std::vector<std::string> bundle_keys = {};
  std::string node = {};  // the name that --node gave this daemon; empty: none
  std::optional<std::string> metrics_url = {};  // empty: off; nullopt: built without metrics
  std::vector<std::string> left_out = {};       // devices that cannot be used, with the reason
};

// Thin handlers over the tuner. Its look-ups and watches take no thread; what
// reads or writes the disk shares one.
std::unique_ptr<grpc::Service> NewTuningService(const ServiceOptions& options);

// Thin handlers over the store, on one thread. The daemon's start time is when this is called.
std::unique_ptr<grpc::Service> NewMaintenanceService(const ServiceOptions& options);

// Thin handlers over the releases, on one thread.
std::unique_ptr<grpc::Service> NewReleaseService(const ServiceOptions& options);

// Bundles in and out, on two threads.
std::unique_ptr<grpc::Service> NewBundleService(const ServiceOptions& options);

// What convtune-fleet calls: thin handlers over the outbox and the tuner, on one thread.
std::unique_ptr<grpc::Service> NewFleetService(const ServiceOptions& options);

}  // namespace convtune::rpc::services

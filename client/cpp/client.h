// A Client calls a daemon.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/cpp/channel.h"
#include "convtune/v1/bundle_service.pb.h"
#include "convtune/v1/maintenance_service.pb.h"
#include "convtune/v1/tuning_service.pb.h"

namespace convtune {

// One connection to a daemon; blocking calls. Thread-safe: calls may run side
// by side.
//
// Every call returns the daemon's error with its code, and with its details
// under kRpcDetailsUrl (see rpc_error.h). UNAVAILABLE: no daemon could be
// reached, or it is stopping; DEADLINE_EXCEEDED: it was reached and needed
// longer than the timeout.
class Client {
 public:
  struct Options {
    Address address;
    TlsFiles tls;
    // For each call. InfiniteDuration() waits for ever.
    absl::Duration timeout = absl::Seconds(30);
  };

  // Does not connect yet. INVALID_ARGUMENT as OpenChannel.
  static absl::StatusOr<std::unique_ptr<Client>> Create(const Options& options);
  virtual ~Client() = default;

  const Address& address() const { return address_; }

  // `timeout` replaces the one of the options, as a look-up may wait for a
  // worker.
  virtual absl::StatusOr<v1::BatchGetResponse> BatchGet(const v1::BatchGetRequest& request,
                                                        absl::Duration timeout) = 0;
  virtual absl::StatusOr<v1::TuningJob> CreateTuningJob(
      const v1::CreateTuningJobRequest& request) = 0;
  virtual absl::StatusOr<v1::TuningJob> GetTuningJob(const v1::GetTuningJobRequest& request) = 0;
  virtual absl::StatusOr<v1::ListTuningJobsResponse> ListTuningJobs(
      const v1::ListTuningJobsRequest& request) = 0;
  // Calls `on_state` for each state that the daemon sends, on this thread,
  // and returns the last one when the job has ended. No timeout.
  virtual absl::StatusOr<v1::TuningJob> WatchTuningJob(
      const v1::WatchTuningJobRequest& request,
      const std::function<void(const v1::TuningJob&)>& on_state) = 0;
  virtual absl::StatusOr<v1::TuningJob> CancelTuningJob(
      const v1::CancelTuningJobRequest& request) = 0;
  virtual absl::StatusOr<v1::Tuning> GetTuning(const v1::GetTuningRequest& request) = 0;
  virtual absl::StatusOr<v1::ListTuningsResponse> ListTunings(
      const v1::ListTuningsRequest& request) = 0;
  virtual absl::StatusOr<v1::DeleteTuningResponse> DeleteTuning(
      const v1::DeleteTuningRequest& request) = 0;
  virtual absl::StatusOr<v1::PinRecord> Pin(const v1::PinRequest& request) = 0;
  virtual absl::StatusOr<v1::UnpinResponse> Unpin(const v1::UnpinRequest& request) = 0;
  virtual absl::StatusOr<v1::ListPinsResponse> ListPins(const v1::ListPinsRequest& request) = 0;
  virtual absl::StatusOr<v1::ListEnvironmentsResponse> ListEnvironments() = 0;
  virtual absl::StatusOr<v1::ListDevicesResponse> ListDevices() = 0;

  virtual absl::StatusOr<v1::ServerInfo> GetServerInfo() = 0;
  // The next three may take long: `timeout` replaces the one of the options.
  virtual absl::StatusOr<v1::CheckDatabaseResponse> CheckDatabase(absl::Duration timeout) = 0;
  virtual absl::StatusOr<v1::BackupDatabaseResponse> BackupDatabase(
      const v1::BackupDatabaseRequest& request, absl::Duration timeout) = 0;
  virtual absl::StatusOr<v1::CompactDatabaseResponse> CompactDatabase(absl::Duration timeout) = 0;

  // Calls `take` with each piece of the bundle, on this thread; an error of it
  // ends the call and is returned.
  virtual absl::Status ExportBundle(const v1::ExportBundleRequest& request,
                                    const std::function<absl::Status(const std::string&)>& take,
                                    absl::Duration timeout) = 0;
  // Sends the pieces that `next` gives, each at most 1 MiB, until an empty one;
  // an error of it ends the call and is returned.
  virtual absl::StatusOr<v1::ImportBundleResponse> ImportBundle(
      bool skip_refused, const std::function<absl::StatusOr<std::string>()>& next,
      absl::Duration timeout) = 0;

  // grpc.health.v1.Health/Check: true if `service` is SERVING. NOT_FOUND: the
  // daemon knows no such service.
  virtual absl::StatusOr<bool> IsServing(const std::string& service) = 0;

  // Sleeps between two tries at a daemon that does not answer. In a plain sleep
  // gRPC does nothing for a connection but every five seconds.
  virtual void Pause(absl::Duration time) = 0;

 protected:
  explicit Client(Address address) : address_(std::move(address)) {}

 private:
  Address address_;
};

}  // namespace convtune

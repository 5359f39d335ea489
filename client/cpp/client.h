// A Client asks a daemon for tunings, jobs, bundles and maintenance. Thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/cpp/connection.h"
#include "convtune/v1/bundle_service.pb.h"
#include "convtune/v1/maintenance_service.pb.h"
#include "convtune/v1/tuning_service.pb.h"

namespace convtune::client {

class Client : public Connection {
 public:
  static absl::StatusOr<std::unique_ptr<Client>> Create(const Options& options) {
    return Open<Client>(options);
  }

  // `timeout` replaces the one of the options, as a look-up may wait for a
  // worker. UNIMPLEMENTED: the daemon does not know the request's max_age.
  absl::StatusOr<v1::BatchGetResponse> BatchGet(const v1::BatchGetRequest& request,
                                                absl::Duration timeout);
  // As BatchGet. Where no answer is there after `ask_after`, asks `enough`, once and on
  // this thread; if that is true, gives the call up and returns CANCELLED.
  absl::StatusOr<v1::BatchGetResponse> BatchGetOrElse(const v1::BatchGetRequest& request,
                                                      absl::Duration timeout,
                                                      absl::Duration ask_after,
                                                      const std::function<bool()>& enough);
  absl::StatusOr<v1::TuningJob> CreateTuningJob(const v1::CreateTuningJobRequest& request) {
    return Call<v1::TuningJob>("TuningService/CreateTuningJob", request);
  }
  absl::StatusOr<v1::TuningJob> GetTuningJob(const v1::GetTuningJobRequest& request) {
    return Call<v1::TuningJob>("TuningService/GetTuningJob", request);
  }
  // Those of all pages.
  absl::StatusOr<v1::ListTuningJobsResponse> ListTuningJobs(
      const v1::ListTuningJobsRequest& request) {
    return CallPages<v1::ListTuningJobsResponse>("TuningService/ListTuningJobs", request,
                                                 [](auto* page) { return page->mutable_jobs(); });
  }
  // Calls `on_state` for each state that the daemon sends, on this thread,
  // and returns the last one when the job has ended. No timeout.
  absl::StatusOr<v1::TuningJob> WatchTuningJob(
      const v1::WatchTuningJobRequest& request,
      const std::function<void(const v1::TuningJob&)>& on_state);
  absl::StatusOr<v1::TuningJob> CancelTuningJob(const v1::CancelTuningJobRequest& request) {
    return Call<v1::TuningJob>("TuningService/CancelTuningJob", request);
  }
  absl::StatusOr<v1::Tuning> GetTuning(const v1::GetTuningRequest& request) {
    return Call<v1::Tuning>("TuningService/GetTuning", request);
  }
  absl::StatusOr<v1::ListTuningsResponse> ListTunings(const v1::ListTuningsRequest& request) {
    return Call<v1::ListTuningsResponse>("TuningService/ListTunings", request);
  }
  absl::StatusOr<v1::DeleteTuningResponse> DeleteTuning(const v1::DeleteTuningRequest& request) {
    return Call<v1::DeleteTuningResponse>("TuningService/DeleteTuning", request);
  }
  absl::StatusOr<v1::PinRecord> Pin(const v1::PinRequest& request) {
    return Call<v1::PinRecord>("TuningService/Pin", request);
  }
  absl::StatusOr<v1::UnpinResponse> Unpin(const v1::UnpinRequest& request) {
    return Call<v1::UnpinResponse>("TuningService/Unpin", request);
  }
  // The pins of all pages.
  absl::StatusOr<v1::ListPinsResponse> ListPins(const v1::ListPinsRequest& request) {
    return CallPages<v1::ListPinsResponse>("TuningService/ListPins", request,
                                           [](auto* page) { return page->mutable_pins(); });
  }
  // Reads every tuning that the ban may change: `timeout` replaces the one of the options.
  absl::StatusOr<v1::CreateBanResponse> CreateBan(const v1::CreateBanRequest& request,
                                                  absl::Duration timeout) {
    return Call<v1::CreateBanResponse>("TuningService/CreateBan", request, timeout);
  }
  absl::StatusOr<v1::DeleteBanResponse> DeleteBan(const v1::DeleteBanRequest& request,
                                                  absl::Duration timeout) {
    return Call<v1::DeleteBanResponse>("TuningService/DeleteBan", request, timeout);
  }
  absl::StatusOr<v1::ListBansResponse> ListBans() {
    return Call<v1::ListBansResponse>("TuningService/ListBans", v1::ListBansRequest());
  }
  // Those of all pages.
  absl::StatusOr<v1::ListEnvironmentsResponse> ListEnvironments() {
    return CallPages<v1::ListEnvironmentsResponse>(
        "TuningService/ListEnvironments", v1::ListEnvironmentsRequest(),
        [](auto* page) { return page->mutable_environments(); });
  }
  absl::StatusOr<v1::ListDevicesResponse> ListDevices() {
    return Call<v1::ListDevicesResponse>("TuningService/ListDevices", v1::ListDevicesRequest());
  }

  absl::StatusOr<v1::ServerInfo> GetServerInfo() {
    return Call<v1::ServerInfo>("MaintenanceService/GetServerInfo", v1::GetServerInfoRequest());
  }
  // The next three may take long: `timeout` replaces the one of the options.
  absl::StatusOr<v1::CheckDatabaseResponse> CheckDatabase(absl::Duration timeout) {
    return Call<v1::CheckDatabaseResponse>("MaintenanceService/CheckDatabase",
                                           v1::CheckDatabaseRequest(), timeout);
  }
  absl::StatusOr<v1::BackupDatabaseResponse> BackupDatabase(
      const v1::BackupDatabaseRequest& request, absl::Duration timeout) {
    return Call<v1::BackupDatabaseResponse>("MaintenanceService/BackupDatabase", request, timeout);
  }
  absl::StatusOr<v1::CompactDatabaseResponse> CompactDatabase(absl::Duration timeout) {
    return Call<v1::CompactDatabaseResponse>("MaintenanceService/CompactDatabase",
                                             v1::CompactDatabaseRequest(), timeout);
  }

  // Calls `take` with each piece of the bundle, on this thread; an error of it
  // ends the call and is returned.
  absl::Status ExportBundle(const v1::ExportBundleRequest& request,
                            const std::function<absl::Status(const std::string&)>& take,
                            absl::Duration timeout);
  // Sends the pieces that `next` gives, each at most 1 MiB, until an empty one;
  // an error of it ends the call and is returned.
  absl::StatusOr<v1::ImportBundleResponse> ImportBundle(
      bool skip_refused, const std::function<absl::StatusOr<std::string>()>& next,
      absl::Duration timeout);

  // grpc.health.v1.Health/Check: true if `service` is SERVING. NOT_FOUND: the
  // daemon knows no such service.
  absl::StatusOr<bool> IsServing(const std::string& service);

  // Sleeps between two tries at a daemon that does not answer. In a plain sleep
  // gRPC does nothing for a connection but every five seconds.
  void Pause(absl::Duration time);
};

}  // namespace convtune::client

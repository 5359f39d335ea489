#include "client/cpp/client.h"

#include <google/protobuf/wrappers.pb.h>
#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/generic/generic_stub.h>

#include <type_traits>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/time/clock.h"
#include "client/cpp/rpc_call.h"
#include "client/cpp/rpc_error.h"
#include "convtune/v1/bundle_service.grpc.pb.h"
#include "convtune/v1/maintenance_service.grpc.pb.h"
#include "convtune/v1/tuning_service.grpc.pb.h"
#include "proto/base/status_macros.h"

namespace convtune {
namespace {

class GrpcClient final : public Client {
 public:
  GrpcClient(const Options& options, std::shared_ptr<grpc::Channel> channel)
      : Client(options.address),
        timeout_(options.timeout),
        channel_(std::move(channel)),
        tuning_(v1::TuningService::NewStub(channel_)),
        maintenance_(v1::MaintenanceService::NewStub(channel_)),
        bundles_(v1::BundleService::NewStub(channel_)) {}

  absl::StatusOr<v1::BatchGetResponse> BatchGet(const v1::BatchGetRequest& request,
                                                absl::Duration timeout) override {
    return Call(*tuning_, &v1::TuningService::Stub::BatchGet, request, timeout);
  }
  absl::StatusOr<v1::TuningJob> CreateTuningJob(
      const v1::CreateTuningJobRequest& request) override {
    return Call(*tuning_, &v1::TuningService::Stub::CreateTuningJob, request, timeout_);
  }
  absl::StatusOr<v1::TuningJob> GetTuningJob(const v1::GetTuningJobRequest& request) override {
    return Call(*tuning_, &v1::TuningService::Stub::GetTuningJob, request, timeout_);
  }
  absl::StatusOr<v1::ListTuningJobsResponse> ListTuningJobs(
      const v1::ListTuningJobsRequest& request) override {
    return Call(*tuning_, &v1::TuningService::Stub::ListTuningJobs, request, timeout_);
  }
  absl::StatusOr<v1::TuningJob> CancelTuningJob(
      const v1::CancelTuningJobRequest& request) override {
    return Call(*tuning_, &v1::TuningService::Stub::CancelTuningJob, request, timeout_);
  }
  absl::StatusOr<v1::Tuning> GetTuning(const v1::GetTuningRequest& request) override {
    return Call(*tuning_, &v1::TuningService::Stub::GetTuning, request, timeout_);
  }
  absl::StatusOr<v1::ListTuningsResponse> ListTunings(
      const v1::ListTuningsRequest& request) override {
    return Call(*tuning_, &v1::TuningService::Stub::ListTunings, request, timeout_);
  }
  absl::StatusOr<v1::DeleteTuningResponse> DeleteTuning(
      const v1::DeleteTuningRequest& request) override {
    return Call(*tuning_, &v1::TuningService::Stub::DeleteTuning, request, timeout_);
  }
  absl::StatusOr<v1::PinRecord> Pin(const v1::PinRequest& request) override {
    return Call(*tuning_, &v1::TuningService::Stub::Pin, request, timeout_);
  }
  absl::StatusOr<v1::UnpinResponse> Unpin(const v1::UnpinRequest& request) override {
    return Call(*tuning_, &v1::TuningService::Stub::Unpin, request, timeout_);
  }
  absl::StatusOr<v1::ListPinsResponse> ListPins(const v1::ListPinsRequest& request) override {
    return Call(*tuning_, &v1::TuningService::Stub::ListPins, request, timeout_);
  }
  absl::StatusOr<v1::ListEnvironmentsResponse> ListEnvironments() override {
    return Call(*tuning_, &v1::TuningService::Stub::ListEnvironments, {}, timeout_);
  }
  absl::StatusOr<v1::ListDevicesResponse> ListDevices() override {
    return Call(*tuning_, &v1::TuningService::Stub::ListDevices, {}, timeout_);
  }
  absl::StatusOr<v1::ServerInfo> GetServerInfo() override {
    return Call(*maintenance_, &v1::MaintenanceService::Stub::GetServerInfo, {}, timeout_);
  }
  absl::StatusOr<v1::CheckDatabaseResponse> CheckDatabase(absl::Duration timeout) override {
    return Call(*maintenance_, &v1::MaintenanceService::Stub::CheckDatabase, {}, timeout);
  }
  absl::StatusOr<v1::BackupDatabaseResponse> BackupDatabase(
      const v1::BackupDatabaseRequest& request, absl::Duration timeout) override {
    return Call(*maintenance_, &v1::MaintenanceService::Stub::BackupDatabase, request, timeout);
  }
  absl::StatusOr<v1::CompactDatabaseResponse> CompactDatabase(absl::Duration timeout) override {
    return Call(*maintenance_, &v1::MaintenanceService::Stub::CompactDatabase, {}, timeout);
  }

  absl::StatusOr<v1::TuningJob> WatchTuningJob(
      const v1::WatchTuningJobRequest& request,
      const std::function<void(const v1::TuningJob&)>& on_state) override {
    grpc::ClientContext context;
    const auto reader = tuning_->WatchTuningJob(&context, request);
    v1::TuningJob job;
    while (reader->Read(&job)) on_state(job);
    RETURN_IF_ERROR(Result(reader->Finish()));
    return job;
  }

  absl::Status ExportBundle(const v1::ExportBundleRequest& request,
                            const std::function<absl::Status(const std::string&)>& take,
                            absl::Duration timeout) override {
    grpc::ClientContext context;
    SetTimeout(&context, timeout);
    const auto reader = bundles_->ExportBundle(&context, request);
    v1::ExportBundleResponse piece;
    absl::Status taken;
    while (taken.ok() && reader->Read(&piece)) taken = take(piece.chunk());
    if (!taken.ok()) context.TryCancel();
    const absl::Status status = Result(reader->Finish());
    return taken.ok() ? status : taken;
  }

  absl::StatusOr<v1::ImportBundleResponse> ImportBundle(
      bool skip_refused, const std::function<absl::StatusOr<std::string>()>& next,
      absl::Duration timeout) override {
    grpc::ClientContext context;
    SetTimeout(&context, timeout);
    v1::ImportBundleResponse response;
    const auto writer = bundles_->ImportBundle(&context, &response);
    v1::ImportBundleRequest request;
    request.set_skip_refused(skip_refused);
    absl::Status given;
    while (true) {
      auto piece = next();
      given = piece.status();
      if (!given.ok()) context.TryCancel();
      if (!given.ok() || piece->empty()) break;
      request.set_chunk(*std::move(piece));
      // What is wrong, Finish says.
      if (!writer->Write(request)) break;
    }
    writer->WritesDone();
    const absl::Status status = Result(writer->Finish());
    RETURN_IF_ERROR(given);
    RETURN_IF_ERROR(status);
    return response;
  }

  void Pause(absl::Duration time) override {
    const absl::Time end = absl::Now() + time;
    if (channel_->GetState(false) != GRPC_CHANNEL_READY) {
      channel_->WaitForConnected(absl::ToChronoTime(end));
    }
    absl::SleepFor(end - absl::Now());
  }

  absl::StatusOr<bool> IsServing(const std::string& service) override {
    // HealthCheckRequest is {string service = 1} and HealthCheckResponse is
    // {enum status = 1, SERVING = 1}: on the wire the same as these two, which
    // every protobuf installation has.
    constexpr int kServing = 1;
    grpc::TemplatedGenericStub<google::protobuf::StringValue, google::protobuf::Int32Value> stub(
        channel_);
    google::protobuf::StringValue request;
    request.set_value(service);
    grpc::ClientContext context;
    SetTimeout(&context, timeout_);
    grpc::CompletionQueue queue;
    const auto call =
        stub.PrepareUnaryCall(&context, "/grpc.health.v1.Health/Check", request, &queue);
    call->StartCall();
    google::protobuf::Int32Value response;
    grpc::Status status;
    call->Finish(&response, &status, nullptr);
    void* tag = nullptr;
    bool ok = false;
    queue.Next(&tag, &ok);
    RETURN_IF_ERROR(Result(status));
    return response.value() == kServing;
  }

 private:
  template <typename Stub, typename Request, typename Response>
  absl::StatusOr<Response> Call(
      Stub& stub, grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
      const std::type_identity_t<Request>& request, absl::Duration timeout) {
    return UnaryCall(*channel_, stub, method, request, timeout);
  }

  absl::Status Result(const grpc::Status& status) { return CallResult(status, *channel_); }

  const absl::Duration timeout_;
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1::TuningService::Stub> tuning_;
  const std::unique_ptr<v1::MaintenanceService::Stub> maintenance_;
  const std::unique_ptr<v1::BundleService::Stub> bundles_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Client>> Client::Create(const Options& options) {
  ASSIGN_OR_RETURN(auto channel, OpenChannel(options.address, options.tls));
  return std::make_unique<GrpcClient>(options, std::move(channel));
}

}  // namespace convtune

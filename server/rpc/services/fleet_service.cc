#include "server/rpc/services/fleet_service.h"

#include <chrono>
#include <optional>
#include <utility>

// First: call.h's templates see the Validate()s that stand before them.
// clang-format off
#include "server/rpc/messages/fleet_converter.h"
// clang-format on
#include "absl/time/time.h"
#include "proto/convert/record_codec.h"
#include "server/rpc/services/call.h"

namespace convtune::rpc::services {
namespace {

constexpr size_t kMaxWaitingForDisk = 64;

class FleetService final : public RawService {
 public:
  explicit FleetService(const FleetServiceOptions& options)
      : RawService(kFleetServiceName), options_(options), disk_(kMaxWaitingForDisk) {
    Unary<v1::GetFleetStateRequest, v1::FleetState>(
        "GetFleetState", &disk_,
        [this](const v1::GetFleetStateRequest& request, v1::FleetState* reply) {
          if (!request.observer()) HearAgent();
          const auto status = options_.outbox->GetOutboxStatus();
          if (status.ok()) {
            *reply = messages::ToProto(*status);
            *reply->mutable_agent_silence() =
                convtune::ToProto(absl::FromChrono(std::chrono::steady_clock::now() - heard_));
          }
          return messages::ToGrpcStatus(status.status());
        });

    Unary<v1::ReadOutboxRequest, v1::ReadOutboxResponse>(
        "ReadOutbox", &disk_,
        [this](const messages::ReadOutboxArgs& args, v1::ReadOutboxResponse* reply) {
          HearAgent();
          const auto page = options_.outbox->ReadOutbox(args.max_rows);
          if (page.ok()) *reply = messages::ToProto(*page);
          return messages::ToGrpcStatus(page.status());
        });

    Unary<v1::AckOutboxRequest, v1::AckOutboxResponse>(
        "AckOutbox", &disk_, [this](const messages::AckOutboxArgs& args, v1::AckOutboxResponse*) {
          return messages::ToGrpcStatus(options_.outbox->AckOutbox(args.ids));
        });

    Unary<v1::RequeueOutboxRequest, v1::RequeueOutboxResponse>(
        "RequeueOutbox", &disk_,
        [this](const v1::RequeueOutboxRequest& request, v1::RequeueOutboxResponse* reply) {
          const absl::StatusOr<int64_t> queued =
              options_.outbox->RequeueOutbox(request.include_fleet());
          if (queued.ok()) reply->set_queued_count(*queued);
          return messages::ToGrpcStatus(queued.status());
        });

    Unary<v1::ApplyTuningsRequest, v1::ApplyTuningsResponse>(
        "ApplyTunings", &disk_,
        [this](const messages::ApplyTuningsArgs& args, v1::ApplyTuningsResponse* reply) {
          HearAgent();
          size_t place = 0;
          const auto next = [&]() -> absl::StatusOr<std::optional<db::TuningRecord>> {
            if (place == args.records.size()) return std::nullopt;
            return args.records[place++];
          };
          const auto counts = options_.tuner->ApplyFleetTunings(
              next, [this](const TuningKey& key) { return options_.outbox->IsInOutbox(key); });
          if (counts.ok()) *reply = messages::ToProto(*counts, args.refused);
          return messages::ToGrpcStatus(counts.status());
        });

    Unary<v1::FollowReleaseRequest, v1::FollowReleaseResponse>(
        "FollowRelease", &disk_,
        [this](const v1::FollowReleaseRequest& request, v1::FollowReleaseResponse* reply) {
          return messages::ToGrpcStatus(Follow(request, reply));
        });
  }

 private:
  // In the one thread of the handlers.
  void HearAgent() { heard_ = std::chrono::steady_clock::now(); }

  absl::Status Follow(const v1::FollowReleaseRequest& request, v1::FollowReleaseResponse* reply) {
    if (options_.releases != nullptr) {
      const auto made = options_.releases->FollowFleet(request.author(), request.reason());
      if (!made.ok()) return made.status();
      if (made->has_value()) reply->set_node_release((*made)->number);
    }
    return options_.outbox->SetFleetRelease(request.release());
  }

  const FleetServiceOptions options_;
  std::chrono::steady_clock::time_point heard_ = std::chrono::steady_clock::now();
  WorkQueue disk_;
};

}  // namespace

std::unique_ptr<grpc::Service> NewFleetService(FleetServiceOptions options) {
  return std::make_unique<FleetService>(options);
}

}  // namespace convtune::rpc::services

#include "server/rpc/services/fleet_service.h"

#include <optional>
#include <utility>

// First: call.h's templates see the Validate()s that stand before them.
// clang-format off
#include "server/rpc/messages/fleet_converter.h"
// clang-format on
#include "convtune/v1/fleet_service.grpc.pb.h"
#include "server/rpc/services/call.h"

namespace convtune::rpc::services {
namespace {

using grpc::ByteBuffer;
using grpc::CallbackServerContext;
using grpc::ServerUnaryReactor;

constexpr size_t kMaxWaitingForDisk = 64;

// Every method takes its bytes raw: see call.h.
using RawFleetService = v1::FleetService::WithRawCallbackMethod_GetFleetState<
    v1::FleetService::WithRawCallbackMethod_ReadOutbox<
        v1::FleetService::WithRawCallbackMethod_AckOutbox<
            v1::FleetService::WithRawCallbackMethod_RequeueOutbox<
                v1::FleetService::WithRawCallbackMethod_ApplyTunings<
                    v1::FleetService::WithRawCallbackMethod_FollowRelease<
                        v1::FleetService::Service>>>>>>;

class FleetService final : public RawFleetService {
 public:
  explicit FleetService(const FleetServiceOptions& options)
      : options_(options), disk_(kMaxWaitingForDisk) {}

  ServerUnaryReactor* GetFleetState(CallbackServerContext* context, const ByteBuffer* in,
                                    ByteBuffer* out) override {
    return HandleUnary<v1::GetFleetStateRequest, v1::FleetState>(
        "GetFleetState", &disk_, context, in, out,
        [this](const messages::NoArgs&, v1::FleetState* reply) {
          const auto status = options_.outbox->GetOutboxStatus();
          if (status.ok()) *reply = messages::ToProto(*status);
          return messages::ToGrpcStatus(status.status());
        });
  }

  ServerUnaryReactor* ReadOutbox(CallbackServerContext* context, const ByteBuffer* in,
                                 ByteBuffer* out) override {
    return HandleUnary<v1::ReadOutboxRequest, v1::ReadOutboxResponse>(
        "ReadOutbox", &disk_, context, in, out,
        [this](const messages::ReadOutboxArgs& args, v1::ReadOutboxResponse* reply) {
          const auto page = options_.outbox->ReadOutbox(args.max_rows);
          if (page.ok()) *reply = messages::ToProto(*page);
          return messages::ToGrpcStatus(page.status());
        });
  }

  ServerUnaryReactor* AckOutbox(CallbackServerContext* context, const ByteBuffer* in,
                                ByteBuffer* out) override {
    return HandleUnary<v1::AckOutboxRequest, v1::AckOutboxResponse>(
        "AckOutbox", &disk_, context, in, out,
        [this](const messages::AckOutboxArgs& args, v1::AckOutboxResponse*) {
          return messages::ToGrpcStatus(options_.outbox->AckOutbox(args.ids));
        });
  }

  ServerUnaryReactor* RequeueOutbox(CallbackServerContext* context, const ByteBuffer* in,
                                    ByteBuffer* out) override {
    return HandleUnary<v1::RequeueOutboxRequest, v1::RequeueOutboxResponse>(
        "RequeueOutbox", &disk_, context, in, out,
        [this](const messages::NoArgs&, v1::RequeueOutboxResponse* reply) {
          const absl::StatusOr<int64_t> queued = options_.outbox->RequeueOutbox();
          if (queued.ok()) reply->set_queued_count(*queued);
          return messages::ToGrpcStatus(queued.status());
        });
  }

  ServerUnaryReactor* ApplyTunings(CallbackServerContext* context, const ByteBuffer* in,
                                   ByteBuffer* out) override {
    return HandleUnary<v1::ApplyTuningsRequest, v1::ApplyTuningsResponse>(
        "ApplyTunings", &disk_, context, in, out,
        [this](const messages::ApplyTuningsArgs& args, v1::ApplyTuningsResponse* reply) {
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
  }

  ServerUnaryReactor* FollowRelease(CallbackServerContext* context, const ByteBuffer* in,
                                    ByteBuffer* out) override {
    return HandleUnary<v1::FollowReleaseRequest, v1::FollowReleaseResponse>(
        "FollowRelease", &disk_, context, in, out,
        [this](const messages::FollowReleaseArgs& args, v1::FollowReleaseResponse* reply) {
          return messages::ToGrpcStatus(Follow(args, reply), "release");
        });
  }

 private:
  absl::Status Follow(const messages::FollowReleaseArgs& args, v1::FollowReleaseResponse* reply) {
    if (options_.releases != nullptr) {
      const auto made = options_.releases->FollowFleet(args.author, args.reason);
      if (!made.ok()) return made.status();
      if (made->has_value()) reply->set_node_release((*made)->number);
    }
    return options_.outbox->SetFleetRelease(args.release);
  }

  const FleetServiceOptions options_;
  WorkQueue disk_;
};

}  // namespace

std::unique_ptr<grpc::Service> NewFleetService(FleetServiceOptions options) {
  return std::make_unique<FleetService>(options);
}

}  // namespace convtune::rpc::services
